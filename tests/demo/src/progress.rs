//! The progress of a run: a bar on a terminal, a line now and then elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::metrics::RequestMetrics;
use crate::record::{RequestLog, RequestRecord};

const BAR: &str = "{prefix:28} {bar:32.cyan/dim} {pos:>5}/{len} {elapsed:>4} {msg}";
/// Interval of updates on a terminal.
const BAR_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of lines in a log.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows the progress of one run until the future is dropped. `position` returns how far the run is, of `length`.
pub(crate) async fn follow(
    label: &str,
    length: usize,
    speed: f64,
    log: &RequestLog,
    position: impl Fn(&[RequestRecord], Duration) -> usize,
) {
    follow_on(
        ProgressDrawTarget::stderr(),
        label,
        length,
        speed,
        log,
        position,
    )
    .await;
}

/// Prints the progress of one of several runs, in lines, until the future is dropped: bars would overwrite one another.
pub(crate) async fn follow_in_lines(label: &str, length: usize, log: &RequestLog) {
    let position = |records: &[RequestRecord], _| records.len();
    follow_on(
        ProgressDrawTarget::hidden(),
        label,
        length,
        1.0,
        log,
        position,
    )
    .await;
}

async fn follow_on(
    target: ProgressDrawTarget,
    label: &str,
    length: usize,
    speed: f64,
    log: &RequestLog,
    position: impl Fn(&[RequestRecord], Duration) -> usize,
) {
    let bar = Bar::new(target, label, length);
    let is_line = bar.0.is_hidden();
    let start = Instant::now();
    loop {
        tokio::time::sleep(if is_line { LINE_INTERVAL } else { BAR_INTERVAL }).await;
        let now = start.elapsed();
        let (position, summary) = {
            let records = log.read();
            let metrics = RequestMetrics::of(&*records, &(Duration::ZERO..now), speed);
            (position(&records, now).min(length), metrics.summary())
        };
        if is_line {
            eprintln!("{label}: {position}/{length}, {summary}");
        } else {
            bar.0.set_position(position as u64);
            bar.0.set_message(summary);
        }
    }
}

/// A bar that is cleared when the run ends, so that the line of the result takes its place.
struct Bar(ProgressBar);

impl Bar {
    fn new(target: ProgressDrawTarget, label: &str, length: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(length as u64), target);
        if let Ok(style) = ProgressStyle::with_template(BAR) {
            bar.set_style(style.progress_chars("━━─"));
        }
        Self(bar.with_prefix(label.to_owned()))
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
