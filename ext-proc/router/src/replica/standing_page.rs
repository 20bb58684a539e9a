//! Gauges that stand still beside an engine without requests.
//!
//! Engines publish their gauges with a step. When the requests of the last batch are aborted, no step follows, and the page shows them until
//! the next request (vllm#29928). A router that waits for such a page to move never sends that request. So a page that shows
//! requests, that has not moved for a while, and that no request of these services explains, is believed to show none. The
//! replica then takes one request ([`super::ProbeState::full_at`]), which makes a page move that can.

use core::time::Duration;

use crate::constant::constants;
use crate::{Load, Time};

constants! {
    /// Time for which a page stands still before it is believed no longer. Guards: a page that lags behind its engine by some probes is still
    /// believed.
    STANDS_STILL_AFTER: Duration = Duration::from_secs(1);
}

/// The gauges of one replica as its page shows them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StandingPage {
    shown: Option<Load>,
    /// Send time of the first probe that showed them, or of the last one that found a request of these services.
    since: Time,
}

impl StandingPage {
    /// Since when the page has stood still.
    pub(super) const fn since(&self) -> Time {
        self.since
    }

    /// Applies a probe that was sent at `sent`. Returns whether the page has stood still for too long; `is_explained` says that services
    /// of this region have requests at the replica, or that it showed another sign of life.
    pub(super) fn stands_still(&mut self, load: &Load, sent: Time, is_explained: bool) -> bool {
        if is_explained || self.shown != Some(*load) {
            (self.shown, self.since) = (Some(*load), sent);
        }
        let shows_requests = load.pending > 0 || load.running.is_some_and(|running| running > 0);
        shows_requests && sent.since(self.since) >= STANDS_STILL_AFTER.get()
    }

    /// The load that is believed of a page that has stood still for too long.
    pub(super) const fn believed(load: Load) -> Load {
        Load {
            pending: 0,
            running: None,
            ..load
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO.after(Duration::from_millis(ms))
    }

    fn load(pending: u32, running: u32) -> Load {
        Load {
            pending,
            running: Some(running),
            ..Load::default()
        }
    }

    #[test]
    fn a_page_that_does_not_move_stands_still_after_a_while() {
        let mut page = StandingPage::default();
        assert!(!page.stands_still(&load(1, 2), at(100), false));
        assert!(!page.stands_still(&load(1, 2), at(1_000), false));
        assert!(page.stands_still(&load(1, 2), at(1_100), false));
        assert!(
            !page.stands_still(&load(1, 3), at(1_200), false),
            "it moves"
        );
    }

    #[test]
    fn requests_of_these_services_explain_a_page() {
        let mut page = StandingPage::default();
        for ms in 0..5_000 {
            assert!(!page.stands_still(&load(1, 2), at(ms), true));
        }
        assert!(page.stands_still(&load(1, 2), at(6_000), false));
    }

    #[test]
    fn an_idle_page_may_stand() {
        let mut page = StandingPage::default();
        page.stands_still(&load(0, 0), at(0), false);
        assert!(!page.stands_still(&load(0, 0), at(60_000), false));
    }
}
