//! The load of an engine over time.

use std::collections::VecDeque;

use super::wall_clock::unix_ms;
use crate::model::Stats;

/// Changes kept; older ones are forgotten.
pub const CHANGES_MAX: usize = 20_000;

/// The load from a moment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    unix_ms: u64,
    waiting: usize,
    arrived: usize,
    running: usize,
}

/// A bounded log of changes.
#[derive(Debug, Default)]
pub struct History {
    changes: VecDeque<Change>,
    forgotten: u64,
}

impl History {
    /// Records the load, if it has changed.
    pub fn record(&mut self, stats: &Stats) {
        let load = |change: &Change| (change.waiting, change.arrived, change.running);
        if self.changes.back().map(load) == Some((stats.waiting, stats.arrived, stats.running)) {
            return;
        }
        if self.changes.len() >= CHANGES_MAX {
            self.changes.pop_front();
            self.forgotten += 1;
        }
        self.changes.push_back(Change {
            unix_ms: unix_ms(),
            waiting: stats.waiting,
            arrived: stats.arrived,
            running: stats.running,
        });
    }

    /// Every change as `[unix_ms, waiting, running, arrived]`.
    pub fn changes(&self) -> impl Iterator<Item = [u64; 4]> {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        self.changes.iter().map(move |change| {
            let Change {
                unix_ms,
                waiting,
                arrived,
                running,
            } = *change;
            [unix_ms, count(waiting), count(running), count(arrived)]
        })
    }

    /// Number of changes that the log no longer holds.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}
