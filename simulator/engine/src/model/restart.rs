//! A restart of the engine's process.

use core::time::Duration;

use super::blocks::BlockPool;
use super::engine::{Engine, nanos};
use super::stats::Totals;

impl Engine {
    /// Restarts the engine: its cache, its adapters and its counters are lost, and the requests in it start anew, as a proxy in
    /// front of it retries them. A first token that is out is not told again.
    pub fn restart(&mut self, now: Duration) {
        self.handle_timeout(now);
        self.step = None;
        while self.preempt_last().is_some() {}
        self.pool = BlockPool::new(self.config.blocks);
        self.loaded.clear();
        self.totals = Totals::default();
        if !self.waiting.is_empty() {
            self.starts_ns = Some(nanos(now));
        }
    }
}
