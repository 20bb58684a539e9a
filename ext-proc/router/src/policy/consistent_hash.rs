//! `consistent_hash`: a hash ring with virtual nodes on the session key (SkyLB-CH, Listing 1 lines 23 to 26).
//!
//! Blind to prompts and yet good for caches, because one session's prompts extend each other. Unavailable replicas
//! are walked past, so a session comes back to its own replica as soon as that can take it. The ring itself is
//! [`crate::ring`], which the choice among peer regions uses too.

use super::{Placement, Policy, View};
use crate::index::Match;
use crate::ring::{Ring, nearness};
use crate::slots::Slot;
use crate::{Reason, Request};

/// A hash ring of replicas.
#[derive(Debug, Default)]
pub(super) struct ConsistentHash {
    ring: Ring,
}

impl Policy for ConsistentHash {
    fn place(&self, request: &Request, view: &View<'_>) -> Option<Placement> {
        Some(Placement::Now {
            slot: self.ring.walk(request, view.candidates, &[])?,
            reason: Reason::Ring,
            found: None,
        })
    }

    fn next_best(
        &self,
        request: &Request,
        _found: Option<&Match>,
        view: &View<'_>,
        failed: &[Slot],
    ) -> Option<Slot> {
        self.ring.walk(request, view.candidates, failed)
    }

    /// How near behind the key it stands, as a share of the ring.
    fn score(&self, request: &Request, slot: Slot, view: &View<'_>) -> f64 {
        let replica = view.fleet.get(slot);
        replica.map_or(0.0, |replica| nearness(request, &replica.name))
    }

    fn joined(&mut self, slot: Slot, name: &str) {
        self.ring.join(slot, name);
    }

    fn left(&mut self, slot: Slot, name: &str) {
        self.ring.leave(slot, name);
    }
}
