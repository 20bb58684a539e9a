//! Whether a replica still begins to compute prompts (`DualMap`, appendix A.7: the decode bottleneck).
//!
//! An engine whose memory is full computes no prompt until an answer ends, however few prompts wait. `DualMap` sees that in
//! its own engine: no prompt has been computed for a while although some wait. From outside there are two signs. A probe
//! tells how many requests wait and how many run: when fewer wait than before, or more run, one has begun. And a request
//! that has ended says when its first token came.

use crate::{Load, Time};

/// Since when a replica has begun no prompt.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StallDetector {
    /// Since when some wait and none begins, as far as can be seen.
    since: Option<Time>,
    pending: u32,
    running: Option<u32>,
}

impl StallDetector {
    /// A probe, sent at `sent`, says this.
    pub(crate) fn probed(&mut self, load: &Load, sent: Time) {
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

    /// The first token of some request came at this time.
    pub(crate) fn computed(&mut self, at: Time) {
        self.since = self.since.map(|since| since.max(at));
    }

    /// Since when some wait there and none begins, if that is so.
    pub(crate) const fn stalled_since(&self) -> Option<Time> {
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
        stall.probed(&load(0, 8), at(1));
        assert_eq!(stall.stalled_since(), None);
        stall.probed(&load(2, 8), at(2));
        stall.probed(&load(3, 7), at(3));
        assert_eq!(stall.stalled_since(), Some(at(2)), "ends do not count");
    }

    #[test]
    fn one_that_begins_ends_it() {
        let mut stall = StallDetector::default();
        stall.probed(&load(2, 8), at(1));
        stall.probed(&load(1, 8), at(2));
        assert_eq!(stall.stalled_since(), Some(at(2)), "fewer wait");
        stall.probed(&load(4, 9), at(3));
        assert_eq!(stall.stalled_since(), Some(at(3)), "more run");
        stall.computed(at(4));
        assert_eq!(stall.stalled_since(), Some(at(4)), "a first token");
        stall.probed(&load(0, 9), at(5));
        assert_eq!(stall.stalled_since(), None, "nobody waits");
    }
}
