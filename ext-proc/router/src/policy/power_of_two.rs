//! `power_of_two`: two by lot, and the one of them with fewer outstanding requests (Mitzenmacher). A baseline
//! that balances nearly as well as looking at everybody, and does not send everybody to the same one.

use super::lots::Lots;
use super::{Placement, Policy, View, load_key, load_score};
use crate::slots::Slot;
use crate::{Reason, Request};

/// The less loaded of two drawn by lot.
#[derive(Debug)]
pub(super) struct PowerOfTwo {
    lots: Lots,
}

impl PowerOfTwo {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            lots: Lots::new(seed),
        }
    }
}

impl Policy for PowerOfTwo {
    fn place(&self, _request: &Request, view: &View<'_>) -> Option<Placement> {
        let mut lots = self.lots.clone();
        let first = lots.draw(view.candidates)?;
        let mut second = lots.draw(view.candidates)?;
        if second == first {
            // Two different ones, where there are two.
            let behind = Slot(first.0.wrapping_add(1));
            second = view.candidates.next_round(behind)?;
        }
        let slot = if load_key(view, first) <= load_key(view, second) {
            first
        } else {
            second
        };
        Some(Placement::Now {
            slot,
            reason: Reason::Drawn,
            found: None,
        })
    }

    fn placed(&mut self, _slot: Slot) {
        self.lots.advance();
        self.lots.advance();
    }

    fn score(&self, _request: &Request, slot: Slot, view: &View<'_>) -> f64 {
        load_score(view, slot)
    }
}
