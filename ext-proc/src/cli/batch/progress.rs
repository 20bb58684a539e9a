//! The progress of a batch on standard error: a bar on a terminal, a line now and then elsewhere.

use std::io::{IsTerminal as _, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use isotherm_batch::pace::UnixMs;
use isotherm_batch::store::BatchRow;

/// Interval of lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// The bar: what is done, how fast, and the rest of the time.
const STYLE: &str = "{msg} {wide_bar} {pos}/{len} {per_sec} ready in {eta}";

pub(super) struct ProgressReport {
    bar: Option<ProgressBar>,
    printed_at: Option<Instant>,
}

impl ProgressReport {
    /// Interval at which the progress is read.
    pub(super) const INTERVAL: Duration = Duration::from_millis(500);

    pub(super) fn new() -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0);
            if let Ok(style) = ProgressStyle::with_template(STYLE) {
                bar.set_style(style);
            }
            bar
        });
        Self {
            bar,
            printed_at: None,
        }
    }

    pub(super) fn show(&mut self, batch: &BatchRow, now: UnixMs) {
        let done = batch.completed + batch.failed;
        let left_s = batch.expires_at.saturating_sub(now).max(0) / 1_000;
        let message = format!("{}, {} failed, {left_s} s left", batch.status, batch.failed);
        if let Some(bar) = &self.bar {
            bar.set_length(batch.total);
            bar.set_position(done);
            bar.set_message(message);
            return;
        }
        let is_due = |at: Instant| at.elapsed() >= LINE_INTERVAL;
        if self.printed_at.is_none_or(is_due) || batch.status.is_final() {
            self.printed_at = Some(Instant::now());
            eprintln!("{done}/{} {message}", batch.total);
        }
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}
