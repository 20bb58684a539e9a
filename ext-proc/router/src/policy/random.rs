//! `random`: by lot, from a seed. A baseline.

use super::seeded_rng::SeededRng;
use super::{Policy, Selection, View};
use crate::replica_index::ReplicaIndex;
use crate::{Reason, Request};

/// By lot.
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
        Some(Selection::Dispatch {
            slot: self.rng.clone().pick(view.candidates)?,
            reason: Reason::Drawn,
            matched: None,
        })
    }

    fn on_dispatch(&mut self, _slot: ReplicaIndex) {
        self.rng.advance();
    }

    /// The same for all: nobody is preferred.
    fn score(&self, _request: &Request, _slot: ReplicaIndex, _view: &View<'_>) -> f64 {
        0.0
    }
}
