//! Times a unit of work by the host's clock.

use core::time::Duration;
use std::time::SystemTime;

use isotherm_bench_core::Unit;
use proxy_wasm::hostcalls;
use proxy_wasm::types::LogLevel;

/// Warm-up: the host compiles hot code to fast code in a thread of its own.
const WARM: Duration = Duration::from_secs(2);
/// Duration of the measurement. No other work interrupts the median run.
const TIMED: Duration = Duration::from_secs(3);

/// Runs the unit, and logs `isotherm-bench UNIT BYTES NANOSECONDS`: the bytes that a run reads, and its median duration.
pub(crate) fn run(unit: &Unit) {
    let mut work = unit.ready();
    runs(&mut work, WARM);
    let mut took = runs(&mut work, TIMED);
    took.sort_unstable();
    let middle = took.get(took.len() / 2).map_or(0, Duration::as_nanos);
    let bytes = unit.bytes().unwrap_or(0);
    let line = format!("isotherm-bench {} {bytes} {middle}", unit.name);
    let _ = hostcalls::log(LogLevel::Warn, &line);
}

/// The duration of each run within a time.
fn runs(work: &mut impl FnMut(), time: Duration) -> Vec<Duration> {
    let start = now();
    let mut before = start;
    let mut took = Vec::new();
    while before.duration_since(start).unwrap_or(time) < time {
        work();
        let after = now();
        took.push(after.duration_since(before).unwrap_or_default());
        before = after;
    }
    took
}

fn now() -> SystemTime {
    hostcalls::get_current_time().unwrap_or(SystemTime::UNIX_EPOCH)
}
