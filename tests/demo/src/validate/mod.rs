//! `validate`: the same requests through the real system and through the simulator, side by side.
//!
//! The real system is Envoy, the filter, the service and engines as processes; the simulator has the same routing core and
//! the same engine model, and its own idea of everything between. So what is compared is that idea: when probes are
//! read, what a message costs, where the fingerprint's blocks lie.
//!
//! Both run in the time of this machine, the engines faster than life by the same factor: the router's own periods are
//! then the same in both. What the way from the client to an engine and back costs on this machine is measured on lone
//! requests, before the workload, and given to the simulator as the delay of its network.
//!
//! Meanwhile `isotherm record` records the real system, and the simulator replays that as well: whoever asks it about
//! their own traffic has nothing but such a recording.

mod describe;
mod lone;
mod options;
mod real;
mod report;
mod simulated;

pub use options::Options;
pub use report::{Comparison, Figures, Report};

use std::path::Path;

use anyhow::Context as _;

/// Runs every policy that is asked for, in both; says on standard error how each goes.
///
/// # Errors
/// When the trace cannot be read, or a stack does not start.
pub async fn validate(options: &Options) -> anyhow::Result<Report> {
    let plan = options.plan()?;
    let mut comparisons = Vec::new();
    for scheme in options.schemes() {
        let label = scheme.label();
        eprintln!(
            "{label}: {} requests through the real system",
            plan.requests()
        );
        let seen = real::run(&plan, scheme, &label)
            .await
            .with_context(|| label.clone())?;
        for failure in &seen.measured.failures {
            eprintln!("{label}: failed: {failure}");
        }
        let simulated = simulated::run(&plan, scheme, &seen);
        comparisons.push(Comparison::new(
            &label,
            Figures::of(&seen.measured),
            simulated,
        ));
    }
    Ok(Report {
        workload: plan.describe(),
        fits: options.fits(),
        comparisons,
    })
}

/// Writes `report.json` and `report.html`, and returns their paths.
///
/// # Errors
/// When they cannot be written.
pub fn write(report: &Report, directory: &Path) -> anyhow::Result<[std::path::PathBuf; 2]> {
    report.write(directory)
}
