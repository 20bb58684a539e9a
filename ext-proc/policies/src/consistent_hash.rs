//! `consistent_hash`: a hash ring with virtual nodes on the session key (SkyLB-CH, Listing 1 lines 23 to 26).
//!
//! The policy knows no prompts and still keeps caches warm, because one session's prompts extend each other. The walk
//! passes unavailable replicas, so a session returns to its own replica as soon as that one is available.
//! [`Ring`] is the core's, which the selection of a peer region uses too.

use isotherm_router::{
    Policy, PolicyEvent, PolicyRules, Reason, ReplicaIndex, Request, Ring, Selection, View,
    nearness,
};

/// SkyLB-CH's ring of sessions.
#[derive(Debug, Default)]
pub struct ConsistentHash {
    ring: Ring,
}

impl Policy for ConsistentHash {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let replica = self.ring.walk(request, view.candidates(), &[])?;
        Some(Selection::to(replica, Reason::Ring, None))
    }

    fn select_fallback(
        &self,
        request: &Request,
        view: &View<'_>,
        failed: &[ReplicaIndex],
    ) -> Option<ReplicaIndex> {
        self.ring.walk(request, view.candidates(), failed)
    }

    /// How near behind the key the replica stands, as a share of the ring.
    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        let name = view.name(replica);
        name.map_or(0.0, |name| nearness(request, name))
    }

    fn on_event(&mut self, event: PolicyEvent<'_>) {
        match event {
            PolicyEvent::ReplicaAdded(replica, name) => self.ring.join(replica, name),
            PolicyEvent::ReplicaRemoved(replica) => self.ring.leave(replica),
            _ => {}
        }
    }

    fn rules(&self) -> PolicyRules {
        PolicyRules {
            ignores_prefixes: true,
            ..PolicyRules::default()
        }
    }
}
