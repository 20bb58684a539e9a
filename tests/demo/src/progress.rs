//! Shows that something happens: a bar on a terminal, a line now and then elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::drive::{Measurements, SharedMeasurements};

const BAR: &str = "{prefix:28} {bar:32.cyan/dim} {pos:>5}/{len} {elapsed:>4} {msg}";
const BAR_INTERVAL: Duration = Duration::from_millis(200);
/// In a log, a line each so many seconds.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Follows one run until the future is dropped.
pub(crate) async fn follow(label: &str, requests: usize, tally: &SharedMeasurements) {
    let bar = Bar::new(label, requests);
    let mut ticks = tokio::time::interval(if bar.0.is_hidden() {
        LINE_INTERVAL
    } else {
        BAR_INTERVAL
    });
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let measured = tally.now();
        if bar.0.is_hidden() {
            eprintln!(
                "{label}: {}/{requests} requests, {}",
                measured.completed + measured.failed,
                summarize(&measured)
            );
        } else {
            bar.0
                .set_position((measured.completed + measured.failed) as u64);
            bar.0.set_message(summarize(&measured));
        }
    }
}

/// Cleared when the run ends in whatever way, so that the line of its result takes its place.
struct Bar(ProgressBar);

impl Bar {
    fn new(label: &str, requests: usize) -> Self {
        let bar =
            ProgressBar::with_draw_target(Some(requests as u64), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(BAR) {
            bar.set_style(style.progress_chars("━━─"));
        }
        bar.set_prefix(label.to_owned());
        Self(bar)
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The figures of a run, so far or at its end.
pub(crate) fn summarize(measured: &Measurements) -> String {
    let ttft = measured.ttft.summary();
    format!(
        "{:.0} % cached, first token {:.0} ms (p50) {:.0} ms (p90), {} failed",
        measured.cache_hit_ratio() * 100.0,
        ttft.p50,
        ttft.p90,
        measured.failed,
    )
}
