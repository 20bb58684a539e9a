//! `power_of_two`: of two random replicas the one with fewer outstanding requests (Mitzenmacher), a baseline that balances
//! nearly as well as the least loaded of all, without sending everything to the same replica.

use super::seeded_rng::SeededRng;
use super::{Policy, PolicyEvent, Selection, View, load_key, load_score};
use crate::replica_index::ReplicaIndex;
use crate::{Reason, Request};

/// The `power_of_two` policy.
#[derive(Debug)]
pub(super) struct PowerOfTwo {
    rng: SeededRng,
}

impl PowerOfTwo {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: SeededRng::new(seed),
        }
    }
}

impl Policy for PowerOfTwo {
    fn select_replica(&self, _request: &Request, view: &View<'_>) -> Option<Selection> {
        let mut rng = self.rng.clone();
        let first = rng.pick(view.candidates)?;
        let mut second = rng.pick(view.candidates)?;
        if second == first {
            // Two different ones, where there are two.
            let next = ReplicaIndex(first.0.wrapping_add(1));
            second = view.candidates.next_round(next)?;
        }
        let replica = if load_key(view, first) <= load_key(view, second) {
            first
        } else {
            second
        };
        Some(Selection::to(replica, Reason::Random, None))
    }

    fn score(&self, _request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        load_score(view, replica)
    }

    fn on_event(&mut self, event: PolicyEvent<'_>) {
        if let PolicyEvent::Dispatch(_) = event {
            self.rng.advance();
            self.rng.advance();
        }
    }
}
