//! `demo --tiers`: what tiers and bounds of tenants promise, on a real Envoy with simulated engines.
//!
//! Three runs compare interactive clients alone, batch clients alone, and both at once. A fourth shows what interactive clients get
//! where batch work has a replica for itself. Three more compare five tenants without a burst with the same tenants while one of them
//! sends ten times its share, with and without a bound on its share. Every run has fresh engines with empty caches, and the same interactive requests.

mod batch;
mod load;
mod report;
mod run;
mod setup;

use anyhow::Context as _;

pub use report::TiersComparison;

use crate::scenario::DemoOptions;
use load::Draw;
use run::{RunPlan, TierRun};
use setup::TierSetup;

/// Plays every run; prints the progress on standard error.
///
/// # Errors
/// When a stack does not start. The report counts requests that fail.
pub async fn compare(options: &DemoOptions) -> anyhow::Result<TiersComparison> {
    let setup = TierSetup::new(options);
    let draw = Draw::new(&setup);
    let mut results = Vec::new();
    for run in TierRun::ALL {
        let plan = RunPlan::new(run, &draw);
        let label = run.label();
        eprintln!("{label}: starting the engines, the service and Envoy");
        let result = run::play(plan, &setup).await;
        results.push(result.with_context(|| label.to_owned())?);
    }
    Ok(TiersComparison::new(setup, results))
}
