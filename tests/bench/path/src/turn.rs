//! A turn of a variant: CPU time, traffic and latency of its requests under one load.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use statrs::statistics::{Data, OrderStatistics as _};

use super::load::{Load, Target};
use super::prompts::Prompts;
use super::running::RunningVariant;
use super::usage::Cpu;
use super::variant::Variant;
use super::workload::Workload;

/// Percentiles of the latency.
pub const PERCENTS: [usize; 3] = [50, 90, 99];

/// A turn of a variant.
#[derive(Clone, Debug, Serialize)]
pub struct Turn {
    /// Variant.
    pub variant: Variant,
    /// Name of the workload.
    pub workload: &'static str,
    /// Number of the round; all variants get the same arrivals in a round.
    pub round: u32,
    /// Completed requests per second at saturation, or the fixed rate.
    pub per_second: f64,
    /// Requests with a complete response.
    pub completed: u64,
    /// Other requests.
    pub failed: u64,
    /// CPU time per completed request of each process, in microseconds.
    pub cpu_micros: BTreeMap<&'static str, f64>,
    /// Bytes per completed request from Envoy to the external processor, and back.
    pub ext_proc_bytes: Option<[f64; 2]>,
    /// Time from the scheduled arrival to the end of the response at [`PERCENTS`], in microseconds; in a closed loop from the
    /// request.
    pub latency_micros: [f64; PERCENTS.len()],
}

/// CPU use of a variant without requests.
#[derive(Clone, Debug, Serialize)]
pub struct IdleUsage {
    /// Variant.
    pub variant: Variant,
    /// CPU time per second of each process, in microseconds.
    pub cpu_micros_per_s: BTreeMap<&'static str, f64>,
}

/// Runs a turn.
///
/// # Errors
/// When a process has ended, or no request completes.
pub async fn turn(
    running: &RunningVariant,
    workload: &Workload,
    load: Load,
    time: Duration,
    round: u32,
    prompts: &Arc<Prompts>,
) -> anyhow::Result<Turn> {
    let target = Target {
        address: running.address,
        workload: *workload,
        prompts: Arc::clone(prompts),
    };
    // Connections, caches and the CPU's clock settle before the measurement.
    target.drive(load, time / 10).await?;
    let bytes_before = running.ext_proc_bytes().await?;
    let before = cpu_times(running)?;
    let tally = target.drive(load, time).await?;
    let after = cpu_times(running)?;
    let bytes = bytes_before.zip(running.ext_proc_bytes().await?);
    let completed = tally.completed as f64;
    let mut latency = Data::new(tally.latency_micros);
    Ok(Turn {
        variant: running.variant,
        workload: workload.name,
        round,
        per_second: match load {
            Load::Closed(_) => completed / tally.took.as_secs_f64(),
            Load::Open(per_second, _) => per_second,
        },
        completed: tally.completed,
        failed: tally.failed,
        cpu_micros: spent_micros(&before, &after, completed),
        ext_proc_bytes: bytes.map(|([to, from], [to_now, from_now])| {
            [(to, to_now), (from, from_now)]
                .map(|(before, now)| now.saturating_sub(before) as f64 / completed)
        }),
        latency_micros: PERCENTS.map(|percent| latency.percentile(percent)),
    })
}

/// Measures CPU use without requests.
///
/// # Errors
/// When a process has ended.
pub async fn idle(running: &RunningVariant, time: Duration) -> anyhow::Result<IdleUsage> {
    let (before, start) = (cpu_times(running)?, Instant::now());
    tokio::time::sleep(time).await;
    let (after, seconds) = (cpu_times(running)?, start.elapsed().as_secs_f64());
    Ok(IdleUsage {
        variant: running.variant,
        cpu_micros_per_s: spent_micros(&before, &after, seconds),
    })
}

/// CPU time of each process at this moment.
type CpuTimes = Vec<(&'static str, Cpu)>;

/// CPU time of the processes of each label since `before` in microseconds, divided by `units`.
fn spent_micros(before: &CpuTimes, after: &CpuTimes, units: f64) -> BTreeMap<&'static str, f64> {
    let mut spent = BTreeMap::new();
    for ((label, before), (_, after)) in before.iter().zip(after) {
        *spent.entry(*label).or_default() += after.since(before).as_secs_f64() * 1e6 / units;
    }
    spent
}

fn cpu_times(running: &RunningVariant) -> anyhow::Result<CpuTimes> {
    let processes = running.processes()?.into_iter();
    processes
        .map(|(label, process)| Ok((label, Cpu::of(process.id())?)))
        .collect()
}
