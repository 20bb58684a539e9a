//! Runs one arrangement after the other with the same clients, each with fresh replicas and empty caches.

use std::time::Duration;

use anyhow::Context as _;

use super::cpu::CpuTimes;
use super::deployment::{Deployment, DeploymentPlan, REGIONS};
use super::options::Trial;
use super::timeline::Timeline;
use super::trials::{ArrangementRun, RegionMetrics, TrialReport};
use crate::metrics::{RequestMetrics, round};
use crate::progress;
use crate::record::{RequestLog, RequestRecord};

/// Runs every arrangement of a trial; prints the progress on standard error.
///
/// # Errors
/// When something does not start. The report counts requests that fail.
pub async fn compare(trial: &Trial) -> anyhow::Result<TrialReport> {
    let mut runs = Vec::new();
    for plan in &trial.plans {
        let label = format!("{} / {}", trial.clients.label(), plan.arrangement.label());
        let (replicas, regions) = (plan.replicas, REGIONS.len());
        eprintln!("{label}: starting {replicas} replicas in each of {regions} regions");
        let run = run(trial, plan, &label).await;
        let run = run.with_context(|| label.clone())?;
        eprintln!("{label}: {}", run.summary());
        runs.push(run);
    }
    let population = &trial.population;
    let measured = population.length.saturating_sub(population.warm_up);
    Ok(TrialReport {
        clients: trial.clients,
        description: trial.clients.description().into(),
        measured_s: round(measured.as_secs_f64() * population.speed),
        runs,
    })
}

async fn run(trial: &Trial, plan: &DeploymentPlan, label: &str) -> anyhow::Result<ArrangementRun> {
    let deployment = Deployment::start(plan).await?;
    let population = &trial.population;
    let (length, speed) = (population.length, population.speed);
    let window = population.warm_up..length;
    let log = RequestLog::default();
    let mut busy_share = None;
    let seconds = |_: &[RequestRecord], now: Duration| now.as_secs() as usize;
    tokio::select! {
        () = population.run(&deployment.clients, &log) => {}
        () = progress::follow(label, length.as_secs() as usize, speed, &log, seconds) => {}
        () = measure_cpu(window.start, window.end, &mut busy_share) => {}
    }
    drop(deployment);
    let records = log.take(label);
    let region_metrics = |(region, name): (usize, &&str)| {
        let of_region = records.iter().filter(|record| record.region == region);
        RegionMetrics {
            name: (*name).to_owned(),
            metrics: RequestMetrics::of(of_region, &window, speed),
        }
    };
    Ok(ArrangementRun {
        arrangement: plan.arrangement,
        replicas: plan.replicas * REGIONS.len(),
        machine_busy_share: busy_share.map(round),
        all: RequestMetrics::of(&records, &window, speed),
        regions: REGIONS.iter().enumerate().map(region_metrics).collect(),
        timeline: Timeline::of(&records, length, REGIONS.len(), speed),
    })
}

/// Measures the machine over the measurement window, and then waits until the future is dropped.
async fn measure_cpu(from: Duration, to: Duration, busy_share: &mut Option<f64>) {
    tokio::time::sleep(from).await;
    let before = CpuTimes::now();
    tokio::time::sleep(to.saturating_sub(from)).await;
    *busy_share = before
        .zip(CpuTimes::now())
        .map(|(before, now)| now.busy_share_since(before));
    std::future::pending().await
}
