//! The progress of a batch on standard error: a bar on a terminal, a line now and then elsewhere.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use isotherm_batch::pace::UnixMs;
use isotherm_batch::store::{BatchRow, BatchStatus};

/// Interval of lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// The display while the file is checked: its number of requests is not known yet.
const SPINNER: &str = "{spinner} {msg}, {prefix}";
/// The bar: what is done, how fast, and the rest of the time.
const BAR: &str = "{msg} {wide_bar} {pos}/{len} {rate}{prefix}";

pub(super) struct ProgressReport {
    bar: Option<ProgressBar>,
    is_validating: bool,
    printed_at: Option<Instant>,
}

impl ProgressReport {
    /// Interval at which the progress is read.
    pub(super) const INTERVAL: Duration = Duration::from_millis(500);

    pub(super) fn new() -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::no_length();
            set_style(&bar, SPINNER);
            bar
        });
        Self {
            bar,
            is_validating: true,
            printed_at: None,
        }
    }

    /// Shows the state of a batch, and the cause for which the gateway cannot be reached.
    pub(super) fn show(&mut self, batch: &BatchRow, now: UnixMs, unreachable: Option<String>) {
        let done = batch.completed + batch.failed;
        let left = time_left(batch.expires_at.saturating_sub(now));
        let message = message(batch, unreachable.as_deref());
        if let Some(bar) = &self.bar {
            bar.set_message(message);
            bar.set_prefix(left);
            bar.set_position(done);
            if batch.status == BatchStatus::Validating {
                bar.tick();
                return;
            }
            bar.set_length(batch.total);
            if std::mem::take(&mut self.is_validating) {
                set_style(bar, BAR);
                // What an earlier run did says nothing about the rate of this one.
                bar.reset_eta();
            }
            return;
        }
        let is_due = |at: Instant| at.elapsed() >= LINE_INTERVAL;
        if self.printed_at.is_none_or(is_due) || batch.status.is_final() {
            self.printed_at = Some(Instant::now());
            eprintln!("{done}/{} {message}, {left}", batch.total);
        }
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn set_style(bar: &ProgressBar, template: &str) {
    // The templates are constants, which the tests read.
    if let Ok(style) = ProgressStyle::with_template(template) {
        let rate = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
            // The text goes to a buffer, which takes everything.
            let _ = text.write_str(&rate(state.per_sec(), state.eta()));
        };
        bar.set_style(style.with_key("rate", rate));
    }
}

fn message(batch: &BatchRow, unreachable: Option<&str>) -> String {
    let mut text = match batch.status {
        BatchStatus::Validating => "checking the file".to_owned(),
        status => format!("{status}, {} failed", batch.failed),
    };
    if let Some(cause) = unreachable {
        // Writing to a string does not fail.
        let _ = write!(text, ", the gateway cannot be reached: {cause}");
    }
    text
}

/// The rate and the time to the end; nothing while there is no rate.
fn rate(per_s: f64, rest: Duration) -> String {
    if !per_s.is_finite() || per_s < 0.05 {
        return String::new();
    }
    format!("{per_s:.1}/s, ready in {}, ", duration(rest.as_secs()))
}

fn time_left(milliseconds: i64) -> String {
    let seconds = u64::try_from(milliseconds / 1_000).unwrap_or(0);
    format!("{} left", duration(seconds))
}

/// A duration in its largest unit and the next.
fn duration(seconds: u64) -> String {
    match seconds {
        3_600.. => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        60.. => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_one_digit_and_none_is_shown_before_there_is_one() {
        assert_eq!(
            rate(6.6483, Duration::from_secs(75)),
            "6.6/s, ready in 1 min 15 s, "
        );
        for per_s in [0.0, f64::NAN, f64::INFINITY] {
            assert_eq!(rate(per_s, Duration::ZERO), "");
        }
    }

    #[test]
    fn the_time_left_is_in_hours_and_minutes() {
        assert_eq!(time_left(86_399_000), "23 h 59 min left");
        assert_eq!(time_left(59_999), "59 s left");
        assert_eq!(time_left(-5), "0 s left");
    }

    #[test]
    fn the_templates_are_read() {
        for template in [SPINNER, BAR] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
