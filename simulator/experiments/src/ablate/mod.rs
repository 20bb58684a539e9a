//! The worth of each constant and rule of the default policy: the shipped policy without it, with half of it, and with twice as much.
//!
//! A first run of every cell lists the constants that the router reads. Then each of them is changed in the whole process, one
//! after the other, and every cell runs again with the same requests. Rules without a constant are switched by configuration.
//! A cell is a workload with a telemetry profile. Figures are ratios to the unchanged policy, cell by cell and seed by seed.
//!
//! The line `chance` changes nothing but the seed of the run: the random numbers of the router, and the phases of the probes.
//! An effect that is no larger than that of chance is none.
//!
//! - `cells`: the cells, and the unchanged runs; `parts`: the changes
//! - `runs`: runs with a change, beside the unchanged ones; `effect`: ratios and their means
//! - `conclusions`: the report

mod cells;
mod conclusions;
mod effect;
mod parts;
mod runs;

use core::cmp::Reverse;

use isotherm_report::Section;
use isotherm_report::number::percent;
use isotherm_router::constants_read;

use self::cells::cells;
use self::effect::Effect;
use self::parts::{PolicyPart, Variant};
use self::runs::{Sample, measure, samples};
use crate::context::Context;
use crate::document::Document;
use crate::rows::Rows;

const SEEDS: u64 = 2;
/// Length of a quick run's workloads, as a share of the full length. Other runs play whole workloads: a part of a day does not reach its
/// peak, where the wait for memory and the stuck prompts of engines without metrics decide.
const QUICK_SCALE: f64 = 0.1;
/// Constants of a quick run.
const QUICK_CONSTANTS: usize = 3;

/// A line of the table: a constant or a rule, with the effect of each of its variants.
struct PartEffect {
    part: PolicyPart,
    effects: [Option<Effect>; 3],
}

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let cells = cells(&context.effort);
    let names: Vec<String> = cells.iter().map(|cell| cell.name.clone()).collect();
    let samples = samples(context, &cells, &context.seeds(SEEDS));
    let mut constants = constants_read();
    if context.effort.quick {
        constants.truncate(QUICK_CONSTANTS);
    }
    let mut rows = Rows::default();
    let mut findings = Vec::new();
    for line in parts::all(&constants) {
        eprintln!("    {}", line.name);
        let effect = |variant: Variant| {
            let change = line.change(variant)?;
            let effect = measure(context, &samples, change);
            rows.0.extend(conclusions::rows(&line, variant, &effect));
            Some(effect)
        };
        let effects = Variant::ALL.map(effect);
        findings.push(PartEffect {
            part: line,
            effects,
        });
    }
    let order = |one: &PartEffect| (!one.part.is_chance(), Reverse(one.carries_in_millionths()));
    findings.sort_by_cached_key(order);
    Document {
        page: Some("ablation"),
        about: vec![about(&samples, &names)],
        conclusions: conclusions::conclusions(&findings, &samples),
        sections: vec![Section::new("Constants and rules").table(conclusions::lines(&findings))],
        rows,
        ..Document::default()
    }
}

fn about(samples: &[Sample], cells: &[String]) -> String {
    let seeds = samples.len().checked_div(cells.len()).unwrap_or_default();
    format!(
        "{} cells, {seeds} seeds each: {}. Workloads have their full length, in a quick run {} of it. Each variant shows goodput at 1 s, the p90 of the time to first token and the p90 of the \
         end of an answer: geometric means over the cells of the ratio to the unchanged policy. Less than 1 is worse for goodput, \
         more than 1 is worse for times. A ratio counts as {} at least and {} at most. The worst and the best cell are those of \
         goodput or of the time to first token over all variants. A variant of which a run panics or does not end fails.",
        cells.len(),
        cells.join("; "),
        percent(QUICK_SCALE),
        percent(1.0 / effect::RATIO_MAX),
        percent(effect::RATIO_MAX),
    )
}

impl PartEffect {
    /// The largest mean harm of a variant, as a ratio; below every other if nothing changes.
    fn carries(&self) -> f64 {
        let effects = self.effects.iter().flatten();
        effects
            .filter(|effect| !effect.is_none())
            .map(Effect::harm)
            .fold(0.0, f64::max)
    }

    fn carries_in_millionths(&self) -> u64 {
        (self.carries() * 1e6) as u64
    }

    /// Whether no variant changes anything.
    fn is_inert(&self) -> bool {
        self.effects.iter().flatten().all(Effect::is_none)
    }
}
