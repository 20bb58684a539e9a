//! The load of an engine over time.

use std::collections::VecDeque;

use super::wall_clock::unix_ms;
use crate::model::Stats;

/// Changes kept; older ones are forgotten.
pub const CHANGES_MAX: usize = 20_000;

/// A bounded log of changes, each as `[unix_ms, waiting, running, arrived]`.
#[derive(Debug, Default)]
pub struct History {
    pub(super) changes: VecDeque<[u64; 4]>,
    /// Number of changes that the log no longer holds.
    pub(super) forgotten: u64,
}

impl History {
    /// Records the load, if it has changed.
    pub fn record(&mut self, stats: &Stats) {
        let load = [stats.waiting, stats.running, stats.arrived].map(|count| count as u64);
        let last = self.changes.back();
        if last.is_some_and(|[_, last @ ..]| *last == load) {
            return;
        }
        if self.changes.len() >= CHANGES_MAX {
            self.changes.pop_front();
            self.forgotten += 1;
        }
        let [waiting, running, arrived] = load;
        let change = [unix_ms(), waiting, running, arrived];
        self.changes.push_back(change);
    }
}
