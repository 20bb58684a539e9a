//! SageServe, Figure 8 and Table 1: interactive and non-interactive requests in separate pools, and in one.
//!
//! One day in one region, four models with 20 instances each. *Siloed*: 16 instances for interactive and 4 for non-interactive requests, each pool
//! reactive by itself. *Unified*: one pool of 20, whose manager holds non-interactive requests until there is room. The paper maps
//! its own models to open ones and does not say how; here Bloom and Llama-3.1 have the traffic of model A, Llama-2 and Llama-3.2
//! that of model C (B and D have holes).

use std::sync::Arc;

use isotherm_report::number::times;
use isotherm_report::{Conclusion, Section};
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
use crate::scaling::scenario::{self, DAY_S, REGIONS, Trial, cluster, deployment};
use crate::scaling::strategies::{Mode, REACTIVE};

const SEEDS: u64 = 3;
const MODELS: [(&str, Engine); 4] = [
    ("Bloom-176B", Engine::BloomA100),
    ("Llama2-70B", Engine::Llama2A100),
    ("Llama3.1-8B", Engine::Llama31),
    ("Llama3.2-3B", Engine::Llama32),
];
/// Instance hours of the paper, unified and siloed, and p95 of the time to the first token, unified and siloed.
const PAPER: [(f64, f64, f64, f64); 4] = [
    (148.0, 199.2, 12.9, 14.5),
    (96.8, 137.2, 34.5, 34.9),
    (53.0, 101.0, 1.0, 1.0),
    (53.0, 101.0, 1.0, 1.0),
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
    let profiles = profiles(context, &MODELS.map(|(_, engine)| engine));
    let trials = trials(context, &traces, &profiles);
    let played = context.map(&trials, Trial::play);
    let mut rows = Vec::new();
    for (trial, played) in trials.iter().zip(&played) {
        for (group, models) in GROUPS {
            let is_counted = |deployment: usize| {
                let model = if trial.system.starts_with(SILOED) {
                    deployment / 2
                } else {
                    deployment
                };
                models.contains(&model)
            };
            let mut row = played.row.clone();
            group.clone_into(&mut row.group);
            row.more = figures::of(played.outcome.of(is_counted));
            rows.push(row);
        }
    }
    let rows = Rows(rows);
    let honest = [UNIFIED, SILOED].map(|name| system(name, Mode::Honest));
    Document {
        about: vec![
            "West US, a Tuesday: four models with 20 instances each on one region's GPUs, reactive scaling (above 70 % of the memory one more, below 30 % \
             one fewer), at least two instances in each pool. Siloed: 16 instances for interactive and 4 for non-interactive requests; unified: 20 for both."
                .into(),
            scenario::about(&traces),
            "Aggregated model of the instances in steps of 15 s; the experiment fidelity measures its error."
                .into(),
        ],
        paper: paper(&rows),
        conclusions: conclusions(&rows),
        sections: vec![Section::detail("Figures of the runs").table(figures::table(&rows, &honest.each_ref().map(String::as_str)))],
        rows,
        ..Document::default()
    }
}

fn system(name: &str, mode: Mode) -> String {
    format!("{name}, {}", mode.name())
}

fn trials(context: &Context, traces: &Traces, profiles: &[Arc<Profile>]) -> Vec<Trial> {
    let west = |series: &Series| series.scaled(REGIONS[0]).between(0.0, 2.0 * DAY_S);
    let series = [&traces.o365_a, &traces.o365_c].map(west);
    let mut trials = Vec::new();
    for seed in context.seeds(SEEDS) {
        for mode in Mode::ALL {
            for name in [UNIFIED, SILOED] {
                let models = MODELS.iter().zip(profiles).zip(series.iter().cycle());
                let models = models.enumerate();
                let deployments = models.flat_map(|(index, (((model, _), profile), traffic))| {
                    if name == UNIFIED {
                        vec![deployment(model, profile, vec![traffic.clone()])]
                    } else {
                        silos(index, model, profile, traffic)
                    }
                });
                // Monday is played and not counted, so that every pool has settled.
                let cluster = cluster(deployments.collect(), DAY_S);
                trials.push(Trial {
                    system: system(name, mode),
                    counted: Vec::new(),
                    ..Trial::new(ALL, REACTIVE, (mode, seed), cluster)
                });
            }
        }
    }
    trials
}

/// A pool for interactive requests and a pool for the others, which share nothing.
fn silos(index: usize, model: &str, profile: &Arc<Profile>, traffic: &Series) -> Vec<Deployment> {
    let only = |is_interactive: bool| Series {
        interval_s: traffic.interval_s,
        points: traffic
            .points
            .iter()
            .map(|point| {
                if is_interactive {
                    Point {
                        batch_per_s: 0.0,
                        ..*point
                    }
                } else {
                    Point {
                        interactive_per_s: 0.0,
                        ..*point
                    }
                }
            })
            .collect(),
    };
    let (interactive, batch) = SILO;
    [(true, interactive), (false, batch)]
        .into_iter()
        .map(|(is_interactive, instances)| Deployment {
            group: 1 + 2 * index + usize::from(is_interactive),
            start: instances,
            bounds: (2, instances),
            has_batch_manager: false,
            ..deployment(model, profile, vec![only(is_interactive)])
        })
        .collect()
}

fn paper(rows: &Rows) -> Vec<PaperComparison> {
    let ratio = |group: &'static str, mode: Mode, figure| {
        rows.at(group, 0.0)
            .ratio(&system(UNIFIED, mode), &system(SILOED, mode), figure)
    };
    let both = |group, figure| Mode::ALL.map(|mode| ratio(group, mode, figure));
    let sums = PAPER
        .iter()
        .fold((0.0, 0.0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
    let mut paper = vec![SOURCE
        .times("hours, unified over siloed, all models", (sums.0 / sums.1, sums.0 / sums.1), &both(ALL, HOURS))
        .because("Two instances at least in each of two silos are 96 hours a day for a model that needs fewer.")];
    for ((name, _), (unified, siloed, p95, p95_siloed)) in MODELS.into_iter().zip(PAPER) {
        let hours = unified / siloed;
        let reason = match name {
            "Llama3.1-8B" | "Llama3.2-3B" => {
                "The minimum of two instances for each silo, in the paper as here."
            }
            _ => "Lengths and rates of the paper's models are not published.",
        };
        paper.push(
            SOURCE
                .times(
                    format!("hours, unified over siloed, {name}"),
                    (hours, hours),
                    &both(name, HOURS),
                )
                .because(reason),
        );
        let p95 = p95 / p95_siloed;
        paper.push(SOURCE.times(
            format!("p95 TTFT, unified over siloed, {name}"),
            (p95, p95),
            &both(name, P95),
        ));
    }
    paper
}

fn conclusions(rows: &Rows) -> Vec<Conclusion> {
    let mut conclusions = Vec::new();
    for mode in Mode::ALL {
        for (group, label) in [
            (ALL, "all four models"),
            (LARGE, "without the two models that stay at the minimum"),
        ] {
            let panel = rows.at(group, 0.0);
            let (unified, siloed) = (system(UNIFIED, mode), system(SILOED, mode));
            let (hours, p95) = (
                panel.ratio(&unified, &siloed, HOURS),
                panel.ratio(&unified, &siloed, P95),
            );
            let case = format!("{}, {label}", mode.name());
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
            conclusions.push(conclusion.in_case(case).measured(measured));
        }
    }
    conclusions
}
