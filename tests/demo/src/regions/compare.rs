//! Runs one arrangement after the other with the same clients, each with fresh replicas and empty caches.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::cpu::{CpuShares, CpuTimes};
use super::deployment::{Deployment, DeploymentPlan, REGIONS};
use super::metrics::RequestMetrics;
use super::options::Trial;
use super::population::{RequestLog, run_workload};
use super::timeline::Timeline;
use super::trials::{ArrangementRun, RegionMetrics, TrialReport};
use crate::stats::round;

/// Interval of progress messages on a terminal; a log has its own.
const TELL_EACH: Duration = Duration::from_secs(2);
const LOG_EACH: Duration = Duration::from_secs(20);

/// Runs every arrangement of a trial; prints the progress on standard error.
///
/// # Errors
/// When something does not start. Requests that fail are counted in the report.
pub async fn compare(trial: &Trial) -> anyhow::Result<TrialReport> {
    let mut runs = Vec::new();
    for plan in &trial.plans {
        let label = plan.arrangement.label();
        eprintln!(
            "{} / {label}: starting {} replicas in each of {} regions",
            trial.clients.label(),
            plan.replicas,
            REGIONS.len()
        );
        let run = run(trial, plan).await.with_context(|| label)?;
        eprintln!("{} / {label}: {}", trial.clients.label(), run.summary());
        runs.push(run);
    }
    Ok(TrialReport::new(trial, runs))
}

async fn run(trial: &Trial, plan: &DeploymentPlan) -> anyhow::Result<ArrangementRun> {
    let deployment = Deployment::start(plan).await?;
    let population = &trial.population;
    let log = RequestLog::default();
    let mut busy = None;
    tokio::select! {
        () = run_workload(population, &deployment.endpoints, &log) => {}
        () = tell(population.length, &log) => {}
        () = measure(population.warm_up, population.length, &mut busy) => {}
    }
    drop(deployment);
    let entries = log.read();
    for failure in &entries.failures {
        eprintln!("failed: {failure}");
    }
    let (records, window) = (&entries.records, population.window());
    let metrics = |region: Option<usize>| {
        RequestMetrics::of(records, window, population.speed, |record| {
            region.is_none_or(|region| record.region == region)
        })
    };
    Ok(ArrangementRun {
        arrangement: plan.arrangement,
        replicas: plan.replicas * REGIONS.len(),
        machine_busy_share: busy.map(|busy| round(busy.machine)),
        own_busy_share: busy.map(|busy| round(busy.own)),
        all: metrics(None),
        regions: REGIONS
            .iter()
            .enumerate()
            .map(|(region, name)| RegionMetrics {
                name: (*name).to_owned(),
                metrics: metrics(Some(region)),
            })
            .collect(),
        timeline: Timeline::of(records, population.length, REGIONS.len(), population.speed),
    })
}

/// Measures the machine over the part that counts, and then waits to be dropped.
async fn measure(from: Duration, to: Duration, busy: &mut Option<CpuShares>) {
    tokio::time::sleep(from).await;
    let before = CpuTimes::now();
    tokio::time::sleep(to.saturating_sub(from)).await;
    *busy = before
        .zip(CpuTimes::now())
        .map(|(before, now)| now.since(before));
    std::future::pending().await
}

/// Prints the progress until it is dropped.
async fn tell(length: Duration, log: &RequestLog) {
    let terminal = std::io::stderr().is_terminal();
    let start = Instant::now();
    loop {
        tokio::time::sleep(if terminal { TELL_EACH } else { LOG_EACH }).await;
        let (ended, failed, away) = {
            let entries = log.read();
            let failed = entries
                .records
                .iter()
                .filter(|record| record.outcome.is_none());
            let away = entries
                .records
                .iter()
                .filter(|record| record.is_forwarded());
            (entries.records.len(), failed.count(), away.count())
        };
        let line = format!(
            "  {:.0}/{:.0} s, {ended} requests, {away} of them in another region, {failed} failed",
            start.elapsed().as_secs_f64(),
            length.as_secs_f64()
        );
        if terminal {
            eprint!("\r{line} ");
        } else {
            eprintln!("{line}");
        }
    }
}
