//! SageServe, Figure 8 and Table 1: interactive and non-interactive requests in separate pools, and in one.
//!
//! One day in one region, four models with 20 instances each. *Siloed*: 16 instances for interactive and 4 for non-interactive requests, each pool
//! reactive by itself. *Unified*: one pool of 20, whose manager holds non-interactive requests until there is room. The paper maps
//! its own models to open ones and does not say how; here Bloom and Llama-3.1 have the traffic of model A, Llama-2 and Llama-3.2
//! that of model C (B and D have holes).

use std::sync::Arc;

use isotherm_report::Conclusion;
use isotherm_report::number::times;
use isotherm_simulator::scaling::cluster::Deployment;
use isotherm_simulator::scaling::profile::Profile;
use isotherm_simulator::scaling::trace::Traces;
use isotherm_simulator::scaling::traffic::{Point, Series};

use crate::context::Context;
use crate::document::Document;
use crate::paper::{PaperComparison, Source};
use crate::rows::Rows;
use crate::scaling::conclusions::SAME;
use crate::scaling::engines::{Engine, profiles};
use crate::scaling::figures::{self, HOURS, P95, WASTED};
use crate::scaling::scenario::{self, AGGREGATED, DAY_S, REGIONS, Trial, cluster, deployment};
use crate::scaling::strategies::{Mode, REACTIVE};

const SEEDS: u64 = 3;
const TOO_FEW: &str = "The minimum of two instances for each silo, in the paper as here.";
const UNKNOWN: &str = "Lengths and rates of the paper's models are not published.";
/// Models, with the paper's instance hours, unified and siloed, p95 of the time to the first token, unified and siloed, and what
/// explains a difference.
type Model = (&'static str, Engine, [f64; 4], &'static str);
#[rustfmt::skip]
const MODELS: [Model; 4] = [
    ("Bloom-176B", Engine::BloomA100, [148.0, 199.2, 12.9, 14.5], UNKNOWN),
    ("Llama2-70B", Engine::Llama2A100, [96.8, 137.2, 34.5, 34.9], UNKNOWN),
    ("Llama3.1-8B", Engine::Llama31, [53.0, 101.0, 1.0, 1.0], TOO_FEW),
    ("Llama3.2-3B", Engine::Llama32, [53.0, 101.0, 1.0, 1.0], TOO_FEW),
];
const UNIFIED: &str = "Unified";
const SILOED: &str = "Siloed";
const SILO: (usize, usize) = (16, 4);
const ALL: &str = "all models";
const LARGE: &str = "Bloom and Llama-2";
/// Groups and the models that count in each.
const GROUPS: [(&str, &[usize]); 6] = [
    (ALL, &[0, 1, 2, 3]),
    (LARGE, &[0, 1]),
    ("Bloom-176B", &[0]),
    ("Llama2-70B", &[1]),
    ("Llama3.1-8B", &[2]),
    ("Llama3.2-3B", &[3]),
];
const SOURCE: Source = Source("SageServe, section 4, Figure 8 and Table 1");

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let traces = scenario::traces(context);
    let profiles = profiles(context, &MODELS.map(|(_, engine, ..)| engine));
    let trials = trials(context, &traces, &profiles);
    let played = context.map(&trials, Trial::play);
    let mut rows = Vec::new();
    for (trial, played) in trials.iter().zip(&played) {
        // A model has two silos.
        let pools = if trial.system.starts_with(SILOED) {
            2
        } else {
            1
        };
        for (group, models) in GROUPS {
            let mut row = played.row.clone();
            group.clone_into(&mut row.group);
            row.more = figures::of(played.outcome.of(|pool| models.contains(&(pool / pools))));
            rows.push(row);
        }
    }
    let rows = Rows(rows);
    let honest = [UNIFIED, SILOED].map(|name| Mode::Honest.group(name));
    Document {
        about: vec![
            "West US, a Tuesday: four models with 20 instances each on one region's GPUs, reactive scaling (above 70 % of the memory one more, below 30 % \
             one fewer), at least two instances in each pool. Siloed: 16 instances for interactive and 4 for non-interactive requests; unified: 20 for both."
                .into(),
            scenario::about(&traces),
            AGGREGATED.into(),
        ],
        paper: paper(&rows),
        conclusions: conclusions(&rows),
        sections: vec![figures::section(&rows, &honest.each_ref().map(String::as_str))],
        rows,
        ..Document::default()
    }
}

fn trials(context: &Context, traces: &Traces, profiles: &[Arc<Profile>]) -> Vec<Trial> {
    let west = |series: &Series| series.scaled(REGIONS[0]).between(0.0, 2.0 * DAY_S);
    let series = [&traces.o365_a, &traces.o365_c].map(west);
    let clusters = [UNIFIED, SILOED].map(|name| {
        let models = MODELS.iter().zip(profiles).zip(series.iter().cycle());
        let deployments =
            models
                .enumerate()
                .flat_map(|(index, (((model, ..), profile), traffic))| {
                    let pool = |traffic| deployment(model, profile, vec![traffic]);
                    match name {
                        UNIFIED => vec![pool(traffic.clone())],
                        _ => silos(index, traffic, pool).into(),
                    }
                });
        // Monday is played and not counted, so that every pool has settled.
        (name, cluster(deployments.collect(), DAY_S))
    });
    let mut trials = Vec::new();
    for seed in context.seeds(SEEDS) {
        for mode in Mode::ALL {
            trials.extend(clusters.iter().map(|(name, cluster)| Trial {
                system: mode.group(name),
                ..Trial::new(ALL, REACTIVE, (mode, seed), cluster.clone())
            }));
        }
    }
    trials
}

/// A pool for interactive requests and a pool for the others, which share nothing.
fn silos(index: usize, traffic: &Series, pool: impl Fn(Series) -> Deployment) -> [Deployment; 2] {
    let silo = |group, instances, only: fn(Point) -> Point| Deployment {
        group,
        start: instances,
        bounds: (2, instances),
        has_batch_manager: false,
        ..pool(traffic.mapped(only))
    };
    let (interactive, batch) = SILO;
    [
        silo(2 + 2 * index, interactive, Point::without_batch),
        silo(1 + 2 * index, batch, |point| Point {
            interactive_per_s: 0.0,
            ..point
        }),
    ]
}

fn paper(rows: &Rows) -> Vec<PaperComparison> {
    let both = |group: &'static str, figure| {
        Mode::ALL.map(|mode| {
            let panel = rows.at(group, 0.0);
            panel.ratio(&mode.group(UNIFIED), &mode.group(SILOED), figure)
        })
    };
    let sum = |at: usize| {
        MODELS
            .iter()
            .filter_map(|(_, _, paper, _)| paper.get(at))
            .sum::<f64>()
    };
    let all = sum(0) / sum(1);
    let all = SOURCE
        .times("hours, unified over siloed, all models", (all, all), &both(ALL, HOURS))
        .because("Two instances at least in each of two silos are 96 hours a day for a model that needs fewer.");
    let each = MODELS.into_iter().flat_map(|(name, _, paper, reason)| {
        let [unified, siloed, p95, p95_siloed] = paper;
        let compare = |what: &str, ratio: f64, figure| {
            let what = format!("{what}, unified over siloed, {name}");
            SOURCE.times(what, (ratio, ratio), &both(name, figure))
        };
        [
            compare("hours", unified / siloed, HOURS).because(reason),
            compare("p95 TTFT", p95 / p95_siloed, P95),
        ]
    });
    core::iter::once(all).chain(each).collect()
}

fn conclusions(rows: &Rows) -> Vec<Conclusion> {
    let mut conclusions = Vec::new();
    for mode in Mode::ALL {
        for (group, label) in [
            (ALL, "all four models"),
            (LARGE, "without the two models that stay at the minimum"),
        ] {
            let panel = rows.at(group, 0.0);
            let [unified, siloed] = [UNIFIED, SILOED].map(|name| mode.group(name));
            let [hours, p95] = [HOURS, P95].map(|figure| panel.ratio(&unified, &siloed, figure));
            let measured = format!(
                "hours {} ({} against {}), p95 TTFT {} ({} s against {} s), hours starting {} against {}",
                times(hours),
                panel.shown(&unified, HOURS),
                panel.shown(&siloed, HOURS),
                times(p95),
                panel.shown(&unified, P95),
                panel.shown(&siloed, P95),
                panel.shown(&unified, WASTED),
                panel.shown(&siloed, WASTED),
            );
            // A model that never fills its memory has the p95 of its engine in both: a bin of the histogram is 2.3 %.
            let text = "unified uses at most 0.75 of the hours at no worse p95";
            let conclusion = Conclusion::claim(text, hours <= 0.75 && p95 <= SAME);
            let case = format!("{}, {label}", mode.name());
            conclusions.push(conclusion.in_case(case).measured(measured));
        }
    }
    conclusions
}
