//! Time that a variant adds to a request at a rate well below saturation.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::open;
use super::prompts::Prompts;
use super::running::RunningVariant;
use super::variant::Variant;
use super::workload::Workload;

/// The percentiles that are reported.
pub const PERCENTS: [f64; 3] = [50.0, 90.0, 99.0];

/// A turn of a variant.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// Variant.
    pub variant: Variant,
    /// Name of the workload.
    pub workload: &'static str,
    /// Number of the round; all variants get the same arrivals in it.
    pub round: u32,
    /// Requests that were due each second.
    pub per_second: f64,
    /// Requests answered that counted.
    pub requests: usize,
    /// Requests that were not answered.
    pub failed: u64,
    /// From the moment at which a request was due to the end of its answer, in microseconds, at [`PERCENTS`].
    pub micros: [f64; PERCENTS.len()],
}

/// Runs a turn.
///
/// # Errors
/// When the generator fails.
pub async fn turn(
    running: &RunningVariant,
    workload: &Workload,
    round: u32,
    per_second: f64,
    time: Duration,
    prompts: &Arc<Prompts>,
) -> anyhow::Result<Latency> {
    let seed = u64::from(round) + 1;
    let answered = open::drive(running.address, workload, per_second, time, seed, prompts).await?;
    Ok(Latency {
        variant: running.variant,
        workload: workload.name,
        round,
        per_second,
        requests: answered.answered(),
        failed: answered.failed,
        micros: PERCENTS.map(|percent| answered.percentile(percent).unwrap_or(f64::NAN)),
    })
}
