//! `consistent_hash`: a hash ring with virtual nodes on the session key (SkyLB-CH, Listing 1 lines 23 to 26).
//!
//! Blind to prompts and yet good for caches, because one session's prompts extend each other. Unavailable replicas
//! are walked past, so a session comes back to its own replica as soon as that can take it. The ring itself is
//! [`crate::ring`], which the choice among peer regions uses too.

use super::{Policy, Selection, View};
use crate::index::PrefixMatch;
use crate::replica_index::ReplicaIndex;
use crate::ring::{Ring, nearness};
use crate::{Reason, Request};

/// A hash ring of replicas.
#[derive(Debug, Default)]
pub(super) struct ConsistentHash {
    ring: Ring,
}

impl Policy for ConsistentHash {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        Some(Selection::Dispatch {
            slot: self.ring.walk(request, view.candidates, &[])?,
            reason: Reason::Ring,
            matched: None,
        })
    }

    fn select_fallback(
        &self,
        request: &Request,
        _found: Option<&PrefixMatch>,
        view: &View<'_>,
        failed: &[ReplicaIndex],
    ) -> Option<ReplicaIndex> {
        self.ring.walk(request, view.candidates, failed)
    }

    /// How near behind the key it stands, as a share of the ring.
    fn score(&self, request: &Request, slot: ReplicaIndex, view: &View<'_>) -> f64 {
        let replica = view.replicas.get(slot);
        replica.map_or(0.0, |replica| nearness(request, &replica.name))
    }

    fn on_replica_added(&mut self, slot: ReplicaIndex, name: &str) {
        self.ring.join(slot, name);
    }

    fn on_replica_removed(&mut self, slot: ReplicaIndex, name: &str) {
        self.ring.leave(slot, name);
    }
}
