//! A unit of work by the host's clock.

use core::time::Duration;
use std::time::SystemTime;

use isotherm_bench_core::Unit;
use proxy_wasm::hostcalls;
use proxy_wasm::types::LogLevel;

/// The host's compiler makes fast code of what has run often; it does that beside, in a thread of its own.
const WARM: Duration = Duration::from_secs(2);
/// The duration of the measurement. The median run is one that no other work has interrupted.
const TIMED: Duration = Duration::from_secs(3);

/// Does it, and logs `isotherm-bench UNIT BYTES NANOSECONDS`: what one run reads, and the median of how long one took.
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

/// Runs it for so long; what each run took.
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
