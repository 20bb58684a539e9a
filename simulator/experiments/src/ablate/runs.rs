//! Runs with a change, beside the unchanged runs of the same requests.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use isotherm_router::{RouterConfig, scale_constant};
use isotherm_simulator::workload::Workload;
use isotherm_simulator::{Arrangement, Outcome, Setup, Summary, jobs};

use super::cells::Cell;
use super::effect::{Effect, Ratios};
use super::parts::Change;
use crate::context::Context;

/// Virtual time after which a run fails: no workload takes a tenth of it.
const LIMIT: Duration = Duration::from_secs(4 * 3_600);
/// A run with so many times the events of the unchanged one fails: its router turns in a circle.
const EVENTS_FACTOR: u64 = 20;

/// A cell with a seed: its requests, and its unchanged run.
pub(super) struct Sample {
    pub(super) cell: String,
    pub(super) seed: u64,
    pub(super) baseline: Summary,
    setup: Setup,
    workload: Workload,
}

/// Every cell with every seed. Cells whose unchanged run fails are left out.
pub(super) fn samples(context: &Context, cells: &[Cell], seeds: &[u64]) -> Vec<Sample> {
    let with_seeds = |cell| seeds.iter().map(move |seed| (cell, *seed));
    let pairs: Vec<(&Cell, u64)> = cells.iter().flat_map(with_seeds).collect();
    let samples = context.map(&pairs, |(cell, seed)| {
        let arrangement = Arrangement::Router(RouterConfig::default());
        let mut setup = Setup {
            telemetry: cell.telemetry,
            limit: LIMIT,
            ..cell.workload.setup(*seed, arrangement)
        };
        let workload = cell.workload.workload(*seed);
        let outcome = play(&setup, &workload, None)?;
        setup.events_max = outcome.events.saturating_mul(EVENTS_FACTOR);
        Some(Sample {
            cell: cell.name.clone(),
            seed: *seed,
            baseline: outcome.summary(setup.slo),
            setup,
            workload,
        })
    });
    samples.into_iter().flatten().collect()
}

/// The effect of a change on every sample. A constant is restored afterwards.
pub(super) fn measure(context: &Context, samples: &[Sample], change: Change) -> Effect {
    if let Some((name, factor)) = change.constant() {
        scale_constant(name, factor);
    }
    let has_failed = AtomicBool::new(false);
    let run = |sample: &Sample| {
        if has_failed.load(Relaxed) {
            return None;
        }
        let outcome = play(&sample.setup, &sample.workload, Some(change));
        has_failed.fetch_or(outcome.is_none(), Relaxed);
        let summary = outcome?.summary(sample.setup.slo);
        Some(Ratios::new(&summary, &sample.baseline))
    };
    let ratios = jobs::map(context.threads(), samples, run, |_| {});
    if let Some((name, _)) = change.constant() {
        scale_constant(name, 1.0);
    }
    let ratios: Option<Vec<Ratios>> = ratios.into_iter().collect();
    let keyed = ratios.map(|ratios| {
        let samples = samples.iter();
        let keys = samples.map(|sample| (sample.cell.clone(), sample.seed));
        keys.zip(ratios).collect()
    });
    keyed.map_or(Effect::Failure, Effect::Of)
}

/// A run with a change of its set-up, if any; none if it panics or does not end.
fn play(setup: &Setup, workload: &Workload, change: Option<Change>) -> Option<Outcome> {
    let mut setup = setup.clone();
    if let Some(change) = change {
        change.apply(&mut setup);
    }
    let run = || isotherm_simulator::run(&setup, workload);
    let outcome = catch_unwind(AssertUnwindSafe(run)).ok();
    outcome.filter(|outcome| !outcome.reached_limit)
}
