//! The load of an engine over time.

use std::collections::VecDeque;

use super::wall_clock::unix_ms;
use crate::model::Stats;

/// Changes kept; older ones are forgotten.
pub const CHANGES_MAX: usize = 20_000;

/// A bounded log of changes, each as `[unix_ms, waiting, running, arrived]`.
#[derive(Debug, Default)]
pub struct History {
    changes: VecDeque<[u64; 4]>,
    forgotten: u64,
}

impl History {
    /// Records the load, if it has changed.
    pub fn record(&mut self, stats: &Stats) {
        let load = [stats.waiting, stats.running, stats.arrived].map(|count| count as u64);
        if self
            .changes
            .back()
            .is_some_and(|[_, last @ ..]| *last == load)
        {
            return;
        }
        if self.changes.len() >= CHANGES_MAX {
            self.changes.pop_front();
            self.forgotten += 1;
        }
        let [waiting, running, arrived] = load;
        self.changes
            .push_back([unix_ms(), waiting, running, arrived]);
    }

    /// Every change.
    #[must_use]
    pub fn changes(&self) -> &VecDeque<[u64; 4]> {
        &self.changes
    }

    /// Number of changes that the log no longer holds.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}
