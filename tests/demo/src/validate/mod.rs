//! `validate`: the same requests through the real system and through the simulator, side by side.
//!
//! The real system is Envoy, the filter, the service and engines as processes. The simulator has the same routing core and
//! the same engine model, and a model of everything between: when the service reads probes, what a message costs, where the
//! fingerprint's blocks lie. The validation tests that model.
//!
//! Both run in this machine's time, with engines that are faster than real time by the same factor, so the router's periods
//! are the same in both. The network delay between client and engine is measured with requests in the idle system, before the
//! workload, and given to the simulator.
//!
//! Meanwhile `isotherm record` records the real system, and the simulator replays the recording as well, since users have
//! only such a recording of their traffic.

mod options;
mod real;
mod report;
mod simulated;
mod unloaded;

use anyhow::Context as _;

pub use options::ValidateOptions;
pub use report::Validation;
use report::{RunMetrics, SystemComparison};

/// Runs every policy in both systems; prints the progress on standard error.
///
/// # Errors
/// When the trace cannot be read, or a stack does not start.
pub async fn validate(options: &ValidateOptions) -> anyhow::Result<Validation> {
    let plan = options.plan()?;
    let mut comparisons = Vec::new();
    for scheme in options.schemes() {
        let label = scheme.label();
        eprintln!(
            "{label}: {} requests through the real system",
            plan.requests()
        );
        let real = real::run(&plan, scheme, &label)
            .await
            .with_context(|| label.clone())?;
        for failure in &real.measurements.failures {
            eprintln!("{label}: failed: {failure}");
        }
        let simulated = simulated::run(&plan, scheme, &real);
        let metrics = RunMetrics::of(&real.measurements);
        comparisons.push(SystemComparison::new(&label, metrics, simulated));
    }
    Ok(Validation {
        scenario: plan.summary(),
        fits: options.fits(),
        comparisons,
    })
}
