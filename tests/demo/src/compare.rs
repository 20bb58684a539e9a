//! Runs one scheme after the other on the same workload, each with fresh engines and empty caches.

use anyhow::Context as _;
use isotherm_harness::envoy::show_decisions;
use isotherm_harness::{MODEL, Pool, Stack, StackBuilder};

use crate::client::Client;
use crate::drive::{Measurements, SharedMeasurements, run_workload};
use crate::load_imbalance::LoadImbalance;
use crate::progress;
use crate::report::{Comparison, Run};
use crate::scenario::{Scenario, Scheme, probe_interval_ms};

/// Runs every scheme; prints the progress on standard error.
///
/// # Errors
/// When a stack does not start. Requests that fail are counted in the report.
pub async fn compare(scenario: &Scenario, schemes: &[Scheme]) -> anyhow::Result<Comparison> {
    let mut runs = Vec::new();
    for scheme in schemes {
        let label = scheme.label();
        eprintln!(
            "{label}: starting {} engines, the service and Envoy",
            scenario.summary.replicas
        );
        let (measured, spread) = run(scenario, *scheme, &label)
            .await
            .with_context(|| label.clone())?;
        eprintln!(
            "{label}: {:.1} s, {}",
            measured.duration.as_secs_f64(),
            progress::summarize(&measured)
        );
        for failure in &measured.failures {
            eprintln!("{label}: failed: {failure}");
        }
        runs.push(Run::new(
            scheme.policy.as_str(),
            scheme.push.name(),
            &measured,
            spread,
        ));
    }
    Ok(Comparison {
        scenario: scenario.summary.clone(),
        runs,
    })
}

async fn run(
    scenario: &Scenario,
    scheme: Scheme,
    label: &str,
) -> anyhow::Result<(Measurements, f64)> {
    let stack = stack_builder("demo", scenario.pool.clone(), scenario.speed, scheme)
        .start()
        .await?;
    let client = Client::new(&stack.url(""), MODEL)?;
    let tally = SharedMeasurements::default();
    let mut spread = LoadImbalance::default();
    let measured = tokio::select! {
        measured = run_workload(&scenario.workload, &client, &tally) => measured,
        () = progress::follow(label, scenario.workload.requests(), &tally) => Measurements::default(),
        () = spread.watch(stack.service()) => Measurements::default(),
    };
    Ok((measured, spread.average()))
}

/// The system for one scheme, with engines that run `speed` times faster than life; not started yet.
pub(crate) fn stack_builder(name: &str, pool: Pool, speed: f64, scheme: Scheme) -> StackBuilder {
    let interval_ms = probe_interval_ms(speed);
    Stack::builder(name)
        .pool(pool.policy(scheme.policy.as_str()).push(scheme.push.name()))
        .service(move |config| {
            config.set(
                "pools/0/probe",
                serde_json::json!({ "interval_ms": interval_ms }),
            )
        })
        .envoy(show_decisions)
}
