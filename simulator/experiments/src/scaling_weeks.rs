//! Scaling over weeks in closed loop: SageServe's week of Office 365 and ServeGen's fourteen days.
//!
//! One model in one region on its own GPUs. The first day is played and not counted. ServeGen's rates are scaled so that the peak needs a
//! dozen instances. The last group is constant load, on which no strategy has a reason to change its mind.

use std::sync::Arc;

use isotherm_report::{Conclusion, Section};
use isotherm_simulator::scaling::profile::Profile;
use isotherm_simulator::scaling::traffic::{Point, Series};

use crate::context::Context;
use crate::document::Document;
use crate::paper::Source;
use crate::rows::Rows;
use crate::scaling::conclusions::{at_most, best_at_no_worse_p95, order};
use crate::scaling::engines::{Engine, profiles};
use crate::scaling::figures::{self, HOURS, REVERSALS, STARTS};
use crate::scaling::scenario::{self, DAY_S, Trial, cluster, deployment};
use crate::scaling::strategies::{CHIRON, HOURLY, LEAN, LT_I, LT_U, LT_UA, Mode, OURS, REACTIVE};

const STRATEGIES: [&str; 8] = [REACTIVE, LT_I, LT_U, LT_UA, CHIRON, OURS, HOURLY, LEAN];
const SEEDS: u64 = 1;
/// Instances that the peak ten minutes need at 70 % of the capacity.
const PEAK_INSTANCES: f64 = 12.0;
const LOAD: f64 = 0.7;
const BOUNDS: (usize, usize) = (2, 24);
const CONSTANT: &str = "constant load";
/// Instances that the constant load keeps busy.
const BUSY: f64 = 4.2;
const SOURCE: Source =
    Source("SageServe, sections 7.2.1 and 7.2.7, Figure 16b (one week; hours of single days)");

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let traces = scenario::traces(context);
    let profiles = profiles(context, &[Engine::Llama2H100]);
    let Some(profile) = profiles.first() else {
        return Document::default();
    };
    let days = |full: f64| {
        if context.effort.quick {
            full.min(3.0)
        } else {
            full
        }
    };
    let mut loads = vec![
        (
            "O365 A",
            sized(&traces.o365_a.between(0.0, days(7.0) * DAY_S), profile),
        ),
        (
            "O365 C",
            sized(&traces.o365_c.between(0.0, days(7.0) * DAY_S), profile),
        ),
        (
            "ServeGen large",
            sized(
                &traces.servegen_large.between(0.0, days(14.0) * DAY_S),
                profile,
            ),
        ),
        (
            "ServeGen small",
            sized(
                &traces.servegen_small.between(0.0, days(14.0) * DAY_S),
                profile,
            ),
        ),
    ];
    loads.push((CONSTANT, constant(profile, 2.0 * DAY_S)));
    let mut trials = Vec::new();
    for (name, traffic) in &loads {
        for seed in context.seeds(SEEDS) {
            for mode in Mode::ALL {
                for strategy in STRATEGIES {
                    let mut deployment = deployment(name, profile, vec![traffic.clone()]);
                    deployment.bounds = BOUNDS;
                    deployment.start = BOUNDS.1;
                    let cluster = cluster(vec![deployment], DAY_S);
                    let group = group(name, mode);
                    trials.push(Trial::new(group, strategy, (mode, seed), cluster));
                }
            }
        }
    }
    let rows = Rows(context.map(&trials, |trial| trial.play().row));
    let weeks: Vec<&str> = loads
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| *name != CONSTANT)
        .collect();
    document(&rows, &weeks, scenario::about(&traces))
}

fn group(name: &str, mode: Mode) -> String {
    format!("{name}, {}", mode.name())
}

fn document(rows: &Rows, weeks: &[&str], traffic: String) -> Document {
    let mut conclusions = Vec::new();
    for mode in Mode::ALL {
        for name in weeks {
            let group = group(name, mode);
            let panel = rows.at(&group, 0.0);
            conclusions.push(best_at_no_worse_p95(panel, OURS));
            conclusions.push(at_most(panel, LEAN, REACTIVE));
            conclusions.push(order(panel));
        }
        let group = group(CONSTANT, mode);
        let panel = rows.at(&group, 0.0);
        let steady = Conclusion::claim(
            "Isotherm starts no instance that it stops within ten minutes",
            panel.stat(OURS, REVERSALS).max == 0.0,
        );
        conclusions.push(steady.in_case(&group).measured(format!(
            "reversals: {}; starts: {}",
            panel.list(&STRATEGIES, REVERSALS),
            panel.list(&STRATEGIES, STARTS)
        )));
    }
    let ratios: Vec<f64> = weeks
        .iter()
        .take(2)
        .flat_map(|name| {
            Mode::ALL.map(|mode| {
                rows.at(&group(name, mode), 0.0)
                    .ratio(LT_UA, REACTIVE, HOURS)
            })
        })
        .collect();
    Document {
        about: vec![
            "One model (Llama-2-70B on 8 H100) in one region, 2 to 24 instances, the traffic scaled so that its peak needs a dozen. The first day is played and not \
             counted. Paper mode: thresholds, start-up times and the forecast of the published code, which knows the future; Isotherm gets that forecast, too. \
             Honest mode: those of the text, and forecasts from the past. Isotherm, lean: a replica may be busy all the time, the forecast covers \
             half of the windows, and the number falls after two minutes; the known forecast of paper mode replaces the last two."
                .into(),
            traffic,
            "Aggregated model of the instances in steps of 15 s; the experiment fidelity measures its error."
                .into(),
        ],
        paper: vec![
            SOURCE
                .times("hours over the week, LT-UA over Reactive", (0.766, 0.772), &ratios)
                .because("The paper gives hours of a peak day only; a week has nights and a weekend, when both are at their minimum."),
        ],
        conclusions,
        sections: vec![
            Section::detail("Figures of the runs").table(figures::table(rows, &[REACTIVE, OURS])),
        ],
        rows: rows.clone(),
        ..Document::default()
    }
}

/// Traffic whose peak ten minutes need [`PEAK_INSTANCES`].
fn sized(series: &Series, profile: &Profile) -> Series {
    let work = |point: &Point| {
        let requests =
            point.interactive_per_s * profile.equivalents(point.prompt_tokens, point.output_tokens);
        requests / profile.capacity_per_s
    };
    let window = (600.0 / series.interval_s).max(1.0) as usize;
    let means = series
        .points
        .chunks(window)
        .map(|points| points.iter().map(work).sum::<f64>() / points.len() as f64);
    let peak = means.fold(0.0, f64::max);
    series.scaled(PEAK_INSTANCES * LOAD / peak.max(1e-9))
}

fn constant(profile: &Arc<Profile>, length_s: f64) -> Series {
    let (prompt_tokens, output_tokens) = profile.tokens;
    let point = Point {
        interactive_per_s: BUSY * profile.capacity_per_s,
        batch_per_s: 0.0,
        prompt_tokens,
        output_tokens,
    };
    Series {
        interval_s: 60.0,
        points: vec![point; (length_s / 60.0) as usize],
    }
}
