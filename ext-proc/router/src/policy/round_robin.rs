//! `round_robin`: each in turn, leaving out who is not available. The baseline that most load balancers ship.

use super::{Policy, Selection, View};
use crate::index::PrefixMatch;
use crate::replica_index::{INDICES_MAX, ReplicaIndex};
use crate::{Reason, Request};

/// Each in turn.
#[derive(Debug)]
pub(super) struct RoundRobin {
    next: ReplicaIndex,
}

impl Default for RoundRobin {
    fn default() -> Self {
        Self {
            next: ReplicaIndex(0),
        }
    }
}

impl Policy for RoundRobin {
    fn select_replica(&self, _request: &Request, view: &View<'_>) -> Option<Selection> {
        Some(Selection::Dispatch {
            slot: view.candidates.next_round(self.next)?,
            reason: Reason::Turn,
            matched: None,
        })
    }

    fn on_dispatch(&mut self, slot: ReplicaIndex) {
        self.next = ReplicaIndex(slot.0.wrapping_add(1));
    }

    fn select_fallback(
        &self,
        _request: &Request,
        _found: Option<&PrefixMatch>,
        view: &View<'_>,
        failed: &[ReplicaIndex],
    ) -> Option<ReplicaIndex> {
        let mut from = self.next;
        for _ in 0..=failed.len() {
            let slot = view.candidates.next_round(from)?;
            if !failed.contains(&slot) {
                return Some(slot);
            }
            from = ReplicaIndex(slot.0.wrapping_add(1));
        }
        None
    }

    /// How soon its turn comes.
    fn score(&self, _request: &Request, slot: ReplicaIndex, _view: &View<'_>) -> f64 {
        let steps = (slot.index() + INDICES_MAX - self.next.index() % INDICES_MAX) % INDICES_MAX;
        -(u32::try_from(steps).map_or(f64::INFINITY, f64::from))
    }
}
