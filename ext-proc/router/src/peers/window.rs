//! How many requests a peer may be forwarded on one report: as many as it says, until it turns out that others believed
//! the same.
//!
//! Every region counts what it forwards itself, and none knows what the others do. When two full regions find room for
//! ten in a third, twenty arrive; half of them come back. So the window is learned as TCP does it: it is not there at first,
//! it halves when a report was refuted, and grows again when it was used up and nothing came back. Regions that share
//! a third one settle at a share each, and a peer that lies is down to one request on each report before its breaker opens.
//!
//! Rejected: dividing a peer's room by the number of regions (most of them need nothing most of the time), and telling peers
//! what others forward (as late as the refusal, and a message for each pair of them).

/// How many requests a peer may be forwarded between two reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    most: u32,
    /// How many were forwarded on the last report but one, as far as they were.
    last: u32,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            most: u32::MAX,
            last: 0,
        }
    }
}

impl Window {
    /// Whether one more may go when so many have gone.
    pub(super) const fn admits(&self, since: u32) -> bool {
        since < self.most
    }

    /// Another report is there; so many had gone on the last one.
    pub(super) fn used(&mut self, since: u32, refuted: bool) {
        self.last = since;
        if !refuted && since >= self.most {
            self.most = self.most.saturating_add((self.most / 4).max(1));
        }
    }

    /// A report was refuted; so many had gone on the present one. The refuted one may be the last.
    pub(super) fn shrink(&mut self, since: u32) {
        let used = since.max(self.last).min(self.most);
        self.most = (used / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many may go on one report.
    fn fill(window: Window) -> u32 {
        (0..1_000).find(|n| !window.admits(*n)).unwrap_or(1_000)
    }

    #[test]
    fn it_is_not_there_until_something_comes_back() {
        let mut window = Window::default();
        window.used(500, false);
        assert_eq!(fill(window), 1_000);
        window.shrink(0);
        assert_eq!(fill(window), 250, "half of what went on the last report");
    }

    #[test]
    fn it_grows_only_when_it_is_used_up() {
        let mut window = Window::default();
        window.shrink(20);
        window.used(3, false);
        assert_eq!(fill(window), 10);
        window.used(10, true);
        assert_eq!(fill(window), 10, "and nothing came back");
        window.used(10, false);
        assert_eq!(fill(window), 12);
    }

    #[test]
    fn it_never_closes_entirely() {
        let mut window = Window::default();
        for _ in 0..5 {
            window.shrink(0);
        }
        assert_eq!(fill(window), 1);
        let mut reports = 0;
        while fill(window) < 33 {
            window.used(fill(window), false);
            reports += 1;
        }
        assert!(reports <= 16, "{reports}: about three seconds");
    }
}
