//! CPU time of every process of a variant, over the requests that it completed in a turn.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde::Serialize;

use super::closed::{Tally, drive};
use super::open;
use super::prompts::Prompts;
use super::running::RunningVariant;
use super::usage::Cpu;
use super::variant::Variant;
use super::workload::Workload;

/// A turn of a variant.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Variant.
    pub variant: Variant,
    /// Name of the workload.
    pub workload: &'static str,
    /// Requests answered.
    pub requests: u64,
    /// Requests that were not.
    pub failed: u64,
    /// Answered requests a second, with as many clients as asked for: what the variant carries. In a turn at a fixed rate,
    /// that rate.
    pub per_second: f64,
    /// CPU time per answered request of each process, in microseconds.
    pub cpu_micros: BTreeMap<&'static str, f64>,
    /// Bytes per answered request between Envoy and the external processor: to it, and from it.
    pub ext_proc_bytes: Option<[f64; 2]>,
}

/// CPU use of a variant without requests.
#[derive(Clone, Debug, Serialize)]
pub struct IdleUsage {
    /// Variant.
    pub variant: Variant,
    /// CPU time per second of each process, in microseconds.
    pub cpu_micros_per_s: BTreeMap<&'static str, f64>,
}

/// Runs a turn at saturation.
///
/// # Errors
/// When a process has ended, or nothing is answered.
pub async fn turn(
    running: &RunningVariant,
    workload: &Workload,
    clients: u16,
    time: Duration,
    prompts: &Arc<Prompts>,
) -> anyhow::Result<Sample> {
    // Connections, caches and the clock of the processor settle before it counts.
    drive(running.address, workload, clients, time / 10, prompts).await?;
    let bytes_before = running.ext_proc_bytes().await?;
    let before = used(running)?;
    let tally = drive(running.address, workload, clients, time, prompts).await?;
    let after = used(running)?;
    let bytes_after = running.ext_proc_bytes().await?;
    let Tally { good, failed, took } = tally;
    let each = |before: u64, after: u64| after.saturating_sub(before) as f64 / good as f64;
    Ok(Sample {
        variant: running.variant,
        workload: workload.name,
        requests: good,
        failed,
        per_second: good as f64 / took.as_secs_f64(),
        cpu_micros: spent(&before, &after, good as f64),
        ext_proc_bytes: bytes_before
            .zip(bytes_after)
            .map(|(before, after)| [each(before[0], after[0]), each(before[1], after[1])]),
    })
}

/// Runs a turn at a fixed rate. Over one rate, work that is done once a second falls on as many requests in every turn; over
/// what each workload carries it would fall on a tenth as many when answers are long.
///
/// # Errors
/// When a process has ended, or nothing is answered.
pub async fn turn_at_rate(
    running: &RunningVariant,
    workload: &Workload,
    per_second: f64,
    time: Duration,
    seed: u64,
    prompts: &Arc<Prompts>,
) -> anyhow::Result<Sample> {
    let drive = |time| open::drive(running.address, workload, per_second, time, seed, prompts);
    drive(time / 10).await?;
    let before = used(running)?;
    let answered = drive(time).await?;
    let after = used(running)?;
    ensure!(
        answered.good > 0,
        "none of {} requests was answered",
        answered.failed
    );
    Ok(Sample {
        variant: running.variant,
        workload: workload.name,
        requests: answered.good,
        failed: answered.failed,
        per_second,
        cpu_micros: spent(&before, &after, answered.good as f64),
        ext_proc_bytes: None,
    })
}

/// Measures CPU use without requests.
///
/// # Errors
/// When a process has ended.
pub async fn idle(running: &RunningVariant, time: Duration) -> anyhow::Result<IdleUsage> {
    let (before, start) = (used(running)?, Instant::now());
    tokio::time::sleep(time).await;
    Ok(IdleUsage {
        variant: running.variant,
        cpu_micros_per_s: spent(&before, &used(running)?, start.elapsed().as_secs_f64()),
    })
}

/// CPU time of each process since `before`, in microseconds, by `units`.
fn spent(
    before: &[(&'static str, Cpu)],
    after: &[(&'static str, Cpu)],
    units: f64,
) -> BTreeMap<&'static str, f64> {
    before
        .iter()
        .zip(after)
        .map(|((label, before), (_, after))| {
            (*label, after.since(before).as_secs_f64() * 1e6 / units)
        })
        .collect()
}

fn used(running: &RunningVariant) -> anyhow::Result<Vec<(&'static str, Cpu)>> {
    let processes = running.processes()?.into_iter();
    processes
        .map(|(label, process)| Ok((label, Cpu::of(process.id())?)))
        .collect()
}
