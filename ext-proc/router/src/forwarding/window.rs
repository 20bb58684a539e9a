//! The number of requests that a peer may get on one report: unlimited, until the peer rejects a request because another
//! region has used the same free capacity.
//!
//! The window is learned as in TCP: it halves when a report is refuted, and grows when it was used up and no request
//! returned. `docs/design/forwarding.md` has the rejected rules.

/// Limit of the requests that a peer may get between two reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportWindow {
    limit: u32,
    /// Requests sent on the report before the current one.
    last_used: u32,
}

impl Default for ReportWindow {
    fn default() -> Self {
        Self {
            limit: u32::MAX,
            last_used: 0,
        }
    }
}

impl ReportWindow {
    /// Whether another request may go when `sent` requests went on the current report.
    pub(super) const fn admits(&self, sent: u32) -> bool {
        sent < self.limit
    }

    /// Handles a new report after `sent` requests on the last one.
    pub(super) fn on_report(&mut self, sent: u32, was_refuted: bool) {
        self.last_used = sent;
        if !was_refuted && sent >= self.limit {
            self.limit = self.limit.saturating_add((self.limit / 4).max(1));
        }
    }

    /// Halves the window after `sent` requests on the current report. The refuted report may be the one before it.
    pub(super) fn shrink(&mut self, sent: u32) {
        let used = sent.max(self.last_used).min(self.limit);
        self.limit = (used / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of requests that the window admits on one report.
    fn fill(window: ReportWindow) -> u32 {
        (0..1_000).find(|n| !window.admits(*n)).unwrap_or(1_000)
    }

    #[test]
    fn a_window_is_unlimited_until_a_request_returns() {
        let mut window = ReportWindow::default();
        window.on_report(500, false);
        assert_eq!(fill(window), 1_000);
        window.shrink(0);
        assert_eq!(fill(window), 250, "half of the requests on the last report");
    }

    #[test]
    fn a_window_grows_only_when_it_is_used_up() {
        let mut window = ReportWindow::default();
        window.shrink(20);
        window.on_report(3, false);
        assert_eq!(fill(window), 10);
        window.on_report(10, true);
        assert_eq!(
            fill(window),
            10,
            "a refuted report does not grow the window"
        );
        window.on_report(10, false);
        assert_eq!(fill(window), 12);
    }

    #[test]
    fn a_window_admits_at_least_one_request() {
        let mut window = ReportWindow::default();
        for _ in 0..5 {
            window.shrink(0);
        }
        assert_eq!(fill(window), 1);
        let mut reports = 0;
        while fill(window) < 33 {
            window.on_report(fill(window), false);
            reports += 1;
        }
        assert!(reports <= 16, "{reports} reports");
    }
}
