//! `random`: a random replica, from a seed. A baseline.

use super::seeded_rng::SeededRng;
use super::{Policy, PolicyEvent, Selection, View};
use crate::replica_index::ReplicaIndex;
use crate::{Reason, Request};

/// The `random` policy.
#[derive(Debug)]
pub(super) struct Random {
    rng: SeededRng,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: SeededRng::new(seed),
        }
    }
}

impl Policy for Random {
    fn select_replica(&self, _request: &Request, view: &View<'_>) -> Option<Selection> {
        let replica = self.rng.clone().pick(view.candidates)?;
        Some(Selection::to(replica, Reason::Random, None))
    }

    /// All replicas are equal.
    fn score(&self, _request: &Request, _replica: ReplicaIndex, _view: &View<'_>) -> f64 {
        0.0
    }

    fn on_event(&mut self, event: PolicyEvent<'_>) {
        if let PolicyEvent::Dispatch(_) = event {
            self.rng.advance();
        }
    }
}
