//! The least that anything takes on any replica of a pool: whoever knows it need not ask them one by one.
//!
//! It is a bound, so it may be too low for a while: a pace that changes only lowers it, and after as many changes as there are
//! replicas it is worked out anew. So a change costs as little as a comparison, on average.

use super::{Fleet, Pace};
use crate::ReplicaId;

/// A pace that no replica is faster than.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Floor {
    pace: Pace,
    /// How often it was only lowered.
    changes: usize,
}

impl Fleet {
    /// A pace that no replica is faster than, neither in what it takes for all nor in what it takes for each.
    pub(crate) const fn fastest(&self) -> &Pace {
        &self.floor.pace
    }

    /// Fewer requests than this are outstanding on no available replica.
    pub(crate) fn least_outstanding(&self) -> u32 {
        self.by_load.first().map_or(0, |rank| rank.key().0)
    }

    /// The pool's pace is another one now, and maybe this one's.
    pub(super) fn lower_floor(&mut self, id: ReplicaId) {
        self.floor.changes += 1;
        if self.floor.changes < self.terms.len() {
            let terms = self.slot_of(id).and_then(|slot| self.terms_of(slot));
            let own = terms.and_then(|terms| terms.pace);
            let floor = self.floor.pace.least(self.pace);
            self.floor.pace = own.map_or(floor, |own| floor.least(own));
            return;
        }
        let own = self.terms.iter().filter_map(|terms| terms.pace);
        self.floor = Floor {
            pace: own.fold(self.pace, Pace::least),
            changes: 0,
        };
    }
}
