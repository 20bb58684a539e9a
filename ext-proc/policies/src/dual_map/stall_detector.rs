//! Detects a replica that begins no prompt although requests wait in it (`DualMap`, appendix A.7: the decode bottleneck).
//!
//! An engine whose memory is full computes no prompt until an answer ends. `DualMap` reads that inside its own engine. From
//! outside there are two signs of progress: between two probes, fewer requests wait or more run; and a finished request
//! reports when its first token came.

use isotherm_router::{Load, Time};

/// Start of the present stall of a replica.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StallDetector {
    /// Time since which requests wait and none begins.
    since: Option<Time>,
    pending: u32,
    running: Option<u32>,
}

impl StallDetector {
    pub(super) fn on_probe(&mut self, load: &Load, sent: Time) {
        let more_run = load.running > self.running;
        let begun = load.pending < self.pending || more_run;
        if load.pending == 0 {
            self.since = None;
        } else if begun || self.since.is_none() {
            self.since = Some(sent);
        }
        self.pending = load.pending;
        self.running = load.running;
    }

    /// Registers the time of a first token.
    pub(super) fn computed(&mut self, at: Time) {
        self.since = self.since.map(|since| since.max(at));
    }

    /// Time since which requests wait and none begins, if any waits.
    pub(super) const fn stalled_since(&self) -> Option<Time> {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn at(s: u64) -> Time {
        Time::ZERO.after(Duration::from_secs(s))
    }

    fn load(pending: u32, running: u32) -> Load {
        Load {
            pending,
            running: Some(running),
            ..Load::default()
        }
    }

    #[test]
    fn a_replica_where_the_same_ones_wait_stalls_since_they_were_first_seen() {
        let mut stall = StallDetector::default();
        stall.on_probe(&load(0, 8), at(1));
        assert_eq!(stall.stalled_since(), None);
        stall.on_probe(&load(2, 8), at(2));
        stall.on_probe(&load(3, 7), at(3));
        assert_eq!(stall.stalled_since(), Some(at(2)), "ends do not count");
    }

    #[test]
    fn one_that_begins_ends_it() {
        let mut stall = StallDetector::default();
        stall.on_probe(&load(2, 8), at(1));
        stall.on_probe(&load(1, 8), at(2));
        assert_eq!(stall.stalled_since(), Some(at(2)), "fewer wait");
        stall.on_probe(&load(4, 9), at(3));
        assert_eq!(stall.stalled_since(), Some(at(3)), "more run");
        stall.computed(at(4));
        assert_eq!(stall.stalled_since(), Some(at(4)), "a first token");
        stall.on_probe(&load(0, 9), at(5));
        assert_eq!(stall.stalled_since(), None, "no request waits");
    }
}
