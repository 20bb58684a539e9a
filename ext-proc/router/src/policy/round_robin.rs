//! `round_robin`: each in turn, leaving out who is not available. The baseline that most load balancers ship.

use super::{Placement, Policy, View};
use crate::index::Match;
use crate::slots::{SLOTS_MAX, Slot};
use crate::{Reason, Request};

/// Each in turn.
#[derive(Debug)]
pub(super) struct RoundRobin {
    next: Slot,
}

impl Default for RoundRobin {
    fn default() -> Self {
        Self { next: Slot(0) }
    }
}

impl Policy for RoundRobin {
    fn place(&self, _request: &Request, view: &View<'_>) -> Option<Placement> {
        Some(Placement::Now {
            slot: view.candidates.next_round(self.next)?,
            reason: Reason::Turn,
            found: None,
        })
    }

    fn placed(&mut self, slot: Slot) {
        self.next = Slot(slot.0.wrapping_add(1));
    }

    fn next_best(
        &self,
        _request: &Request,
        _found: Option<&Match>,
        view: &View<'_>,
        failed: &[Slot],
    ) -> Option<Slot> {
        let mut from = self.next;
        for _ in 0..=failed.len() {
            let slot = view.candidates.next_round(from)?;
            if !failed.contains(&slot) {
                return Some(slot);
            }
            from = Slot(slot.0.wrapping_add(1));
        }
        None
    }

    /// How soon its turn comes.
    fn score(&self, _request: &Request, slot: Slot, _view: &View<'_>) -> f64 {
        let steps = (slot.index() + SLOTS_MAX - self.next.index() % SLOTS_MAX) % SLOTS_MAX;
        -(u32::try_from(steps).map_or(f64::INFINITY, f64::from))
    }
}
