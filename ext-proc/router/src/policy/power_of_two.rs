//! `power_of_two`: two by lot, and the one of them with fewer outstanding requests (Mitzenmacher). A baseline
//! that balances nearly as well as looking at everybody, and does not send everybody to the same one.

use super::seeded_rng::SeededRng;
use super::{Policy, Selection, View, load_key, load_score};
use crate::replica_index::ReplicaIndex;
use crate::{Reason, Request};

/// The less loaded of two drawn by lot.
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
            let behind = ReplicaIndex(first.0.wrapping_add(1));
            second = view.candidates.next_round(behind)?;
        }
        let slot = if load_key(view, first) <= load_key(view, second) {
            first
        } else {
            second
        };
        Some(Selection::Dispatch {
            slot,
            reason: Reason::Drawn,
            matched: None,
        })
    }

    fn on_dispatch(&mut self, _slot: ReplicaIndex) {
        self.rng.advance();
        self.rng.advance();
    }

    fn score(&self, _request: &Request, slot: ReplicaIndex, view: &View<'_>) -> f64 {
        load_score(view, slot)
    }
}
