//! `validate`: the same requests through the real system and through the simulator, side by side.
//!
//! The real system is Envoy, the filter, the service and engines as processes. The simulator has the same routing core and
//! engine model, and a model of the rest: the interval of probes, the cost of messages, the blocks of fingerprints. The
//! validation tests that model.
//!
//! Both run on this machine's clock with equally fast engines, so the router's periods are the same. Requests in the idle
//! system measure the network delay, which the simulator gets as an input.
//!
//! `isotherm record` records the real system. The simulator also replays this recording, since users have only recordings of
//! their traffic.

mod options;
mod real;
mod report;
mod simulated;
mod unloaded;

use anyhow::Context as _;

pub use options::ValidateOptions;
use report::SystemComparison;
pub use report::Validation;

/// Runs every policy in both systems; prints the progress on standard error.
///
/// # Errors
/// When the trace cannot be read, or a stack does not start.
pub async fn validate(options: &ValidateOptions) -> anyhow::Result<Validation> {
    let plan = options.plan()?;
    let mut comparisons = Vec::new();
    for scheme in options.schemes() {
        let label = scheme.label();
        let requests = plan.workload.requests();
        eprintln!("{label}: {requests} requests through the real system");
        let real = real::run(&plan, scheme, &label).await;
        let real = real.with_context(|| label.clone())?;
        let simulated = simulated::run(&plan, scheme, &real);
        comparisons.push(SystemComparison::new(&label, real.metrics, simulated));
    }
    Ok(Validation {
        scenario: plan.summary(),
        comparisons,
    })
}
