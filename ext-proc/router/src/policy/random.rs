//! `random`: by lot, from a seed. A baseline.

use super::lots::Lots;
use super::{Placement, Policy, View};
use crate::slots::Slot;
use crate::{Reason, Request};

/// By lot.
#[derive(Debug)]
pub(super) struct Random {
    lots: Lots,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            lots: Lots::new(seed),
        }
    }
}

impl Policy for Random {
    fn place(&self, _request: &Request, view: &View<'_>) -> Option<Placement> {
        Some(Placement::Now {
            slot: self.lots.clone().draw(view.candidates)?,
            reason: Reason::Drawn,
            found: None,
        })
    }

    fn placed(&mut self, _slot: Slot) {
        self.lots.advance();
    }

    /// The same for all: nobody is preferred.
    fn score(&self, _request: &Request, _slot: Slot, _view: &View<'_>) -> f64 {
        0.0
    }
}
