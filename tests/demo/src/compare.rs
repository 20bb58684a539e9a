//! Runs one scheme after the other on the same workload, each with fresh engines and empty caches.

use std::time::Duration;

use anyhow::Context as _;
use isotherm_harness::envoy::show_decisions;
use isotherm_harness::{Document, Pool, Service, Stack, StackBuilder};
use serde_json::json;

use crate::client::Client;
use crate::drive::run_workload;
use crate::metrics::{RequestMetrics, round};
use crate::progress;
use crate::record::RequestLog;
use crate::replica_load::ReplicaLoad;
use crate::report::{Comparison, Run, plain_name};
use crate::run_curves::RunCurves;
use crate::scenario::{Scenario, Scheme, probe_interval_ms};

/// Runs every scheme; prints the progress on standard error.
///
/// # Errors
/// When a stack does not start. The report counts requests that fail.
pub async fn compare(scenario: &Scenario, schemes: &[Scheme]) -> anyhow::Result<Comparison> {
    let mut runs = Vec::new();
    for scheme in schemes {
        let label = plain_name(scheme.policy.as_ref());
        let replicas = scenario.summary.replicas;
        eprintln!("{label}: starting {replicas} engines, the service and Envoy");
        let run = run(scenario, *scheme, &label).await;
        let run = run.with_context(|| label.clone())?;
        let summary = run.metrics.summary();
        eprintln!("{label}: {:.1} s, {summary}", run.duration_s);
        runs.push(run);
    }
    Ok(Comparison {
        scenario: scenario.summary.clone(),
        runs,
    })
}

async fn run(scenario: &Scenario, scheme: Scheme, label: &str) -> anyhow::Result<Run> {
    let stack = start(scenario, scheme).await?;
    measure(scenario, scheme, label, &stack.url(""), stack.service()).await
}

/// Starts a standalone stack for one scheme.
///
/// # Errors
/// When it does not become ready.
pub async fn start(scenario: &Scenario, scheme: Scheme) -> anyhow::Result<Stack> {
    let speed = scenario.summary.engine_speed();
    let stack = stack_builder("demo", scenario.pool.clone(), speed, scheme);
    stack.start().await
}

/// Plays the scenario's workload against the Envoy at `base`, for which `service` decides. Times and rates of the run are those
/// of the engines.
///
/// # Errors
/// When the client gets no resources from the system.
pub async fn measure(
    scenario: &Scenario,
    scheme: Scheme,
    label: &str,
    base: &str,
    service: &Service,
) -> anyhow::Result<Run> {
    let workload = &scenario.workload;
    let client = Client::new(base)?;
    let log = RequestLog::default();
    let mut load = ReplicaLoad::default();
    let duration = tokio::select! {
        duration = run_workload(workload, &client, &log) => duration,
        () = progress::follow(label, workload.requests(), 1.0, &log, |records, _| records.len()) => Duration::ZERO,
        () = load.watch(service) => Duration::ZERO,
    };
    let (records, speed) = (log.take(label), scenario.summary.speed);
    Ok(Run {
        system: None,
        policy: scheme.policy.as_ref().into(),
        push: scheme.push.name().into(),
        duration_s: round(duration.as_secs_f64()),
        load_imbalance: round(load.imbalance()),
        curves: RunCurves::of(&records, load.samples(), duration, speed),
        metrics: RequestMetrics::of(&records, &(Duration::ZERO..duration), speed),
    })
}

/// A stack for one scheme with engines that run `speed` times faster than real time; not started yet.
pub(crate) fn stack_builder(name: &str, pool: Pool, speed: f64, scheme: Scheme) -> StackBuilder {
    Stack::builder(name)
        .pool(pool.policy(scheme.policy.as_ref()).push(scheme.push.name()))
        .service(move |config| set_probe_interval(config, speed))
        .envoy(show_decisions)
}

/// Sets the interval of the service's probes for engines that run `speed` times faster than real time.
pub(crate) fn set_probe_interval(config: &mut Document, speed: f64) -> anyhow::Result<()> {
    config.set(
        "pools/0/probe",
        json!({ "interval_ms": probe_interval_ms(speed) }),
    )
}
