//! The assumption on which DualMap's advantage rests.
//!
//! The paper's order is: DualMap above Preble, Min TTFT and Least Loaded at high rates of conversations. Here each
//! assumption behind it is varied by itself, and the same policies are swept over the rate again:
//!
//! - who holds back what an engine cannot start: the router (selective pushing), or no component (everything is pushed at once, and
//!   waits where it can no longer be moved or reordered);
//! - what the router sees of the engines' load: every 100 ms, every second, never;
//! - the memory that answers take while they are written: none (answers of one token, as on a prefill instance of a
//!   disaggregated system), or a third of the blocks, or four times as many, which also makes the cache smaller or larger.
//!
//! Every policy runs under the same rule in each panel, unlike `dualmap-3`, where the baselines push at once as in the paper.

use core::time::Duration;
use std::sync::Arc;

use isotherm_report::number::{percent, short, times};
use isotherm_router::{PolicyName, Push};

use crate::charts::{Axes, Charts};
use crate::context::{Case, Context, WorkloadSource, config};
use crate::document::Document;
use crate::dualmap::{
    CONVERSATION, DUAL_MAP, GOODPUT_SHARE, LEAST_LOADED, MIN_TTFT, PREBLE, REPLICAS, best_goodput,
    goodput, goodput_shown, policy, setup, source,
};
use crate::figures::{Figure, attainment, hits};
use crate::rows::Rows;
use isotherm_report::{Conclusion, Section, Table};
use isotherm_simulator::{Arrangement, Setup};

const PREFIX_TREE: &str = "prefix_tree";
const SYSTEMS: [&str; 5] = [DUAL_MAP, PREBLE, MIN_TTFT, LEAST_LOADED, PREFIX_TREE];
/// Systems that the paper ranks below DualMap.
const BELOW: [&str; 3] = [PREBLE, MIN_TTFT, LEAST_LOADED];
const SEEDS: u64 = 1;
/// Relative difference below which two goodputs count as equal: the rates are coarser.
const TIE: f64 = 0.02;

/// A time longer than any run.
const NEVER: Duration = Duration::from_secs(7 * 24 * 3_600);

/// An assumption, varied.
struct Assumption {
    name: &'static str,
    /// Difference from the first assumption.
    what: &'static str,
    rates: &'static [f64],
    push: Push,
    probe_interval: Option<Duration>,
    /// Blocks of KV memory, over those of the engine.
    memory: (u32, u32),
    answers: Answers,
}

/// Length of the answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answers {
    AsRecorded,
    OneToken,
}

const AS_MEASURED: Assumption = Assumption {
    name: "as it is",
    what: "selective pushing by pending requests, probes every 100 ms, 944,000 tokens of memory an engine",
    rates: &[6.0, 7.0, 8.0, 8.5, 9.0],
    push: Push::Pending,
    probe_interval: None,
    memory: (1, 1),
    answers: Answers::AsRecorded,
};

const ASSUMPTIONS: [Assumption; 7] = [
    AS_MEASURED,
    Assumption {
        name: "pushed at once",
        what: "every policy pushes at once (blind); engines queue what they cannot start",
        push: Push::Blind,
        ..AS_MEASURED
    },
    Assumption {
        name: "stale load",
        what: "probes every second",
        probe_interval: Some(Duration::from_secs(1)),
        ..AS_MEASURED
    },
    Assumption {
        name: "pushed at once, no probes",
        what: "blind, and the router sees nothing of the engines: it goes by what it has sent, by how long that should take, and by what ends",
        push: Push::Blind,
        probe_interval: Some(NEVER),
        ..AS_MEASURED
    },
    Assumption {
        name: "no answers",
        what: "answers of one token: no memory and no time goes into decoding",
        rates: &[8.0, 10.0, 11.0, 12.0, 13.0],
        answers: Answers::OneToken,
        ..AS_MEASURED
    },
    Assumption {
        name: "a third of the memory",
        what: "314,000 tokens an engine",
        rates: &[5.0, 6.0, 7.0, 7.5, 8.0],
        memory: (1, 3),
        ..AS_MEASURED
    },
    Assumption {
        name: "four times the memory",
        what: "3.8 million tokens an engine",
        memory: (4, 1),
        ..AS_MEASURED
    },
];

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let mut cases = Vec::new();
    for assumption in &ASSUMPTIONS {
        for rate in context.points(assumption.rates) {
            for system in SYSTEMS {
                cases.push(case(context, assumption, system, rate));
            }
        }
    }
    let rows = context.run(SEEDS, &cases);
    Document {
        title: "DualMap: which assumption makes the difference".into(),
        about: vec![format!(
            "{REPLICAS} replicas (Llama-3.1-8B on two A100 each), conversations. One assumption is varied in each panel, for all policies alike. Goodput: the \
                 highest rate with {} of the requests within 5 s. {}",
            percent(GOODPUT_SHARE),
            crate::workloads::described(context.effort())
        )],
        conclusions: conclusions(&rows),
        sections: sections(&rows),
        rows,
        ..Document::default()
    }
}

fn case(context: &Context, assumption: &Assumption, system: &str, rate: f64) -> Case {
    let policy = match system {
        PREFIX_TREE => PolicyName::PrefixTree,
        _ => policy(system),
    };
    let mut config = config(policy, assumption.push);
    if assumption.probe_interval == Some(NEVER) {
        config.probe_stale_after = NEVER;
    }
    let mut setup: Setup = setup(REPLICAS, Arrangement::Router(config));
    if let Some(interval) = assumption.probe_interval {
        setup.probe_interval = interval;
    }
    let (times, over) = assumption.memory;
    for replica in setup
        .regions
        .iter_mut()
        .flat_map(|region| &mut region.replicas)
    {
        replica.config.blocks = replica.config.blocks.saturating_mul(times) / over.max(1);
    }
    let source = with_answers(source(context, CONVERSATION, rate), assumption.answers);
    Case::new(assumption.name, system, rate, setup, &source)
}

/// The workload with answers of this length.
fn with_answers(source: WorkloadSource, answers: Answers) -> WorkloadSource {
    Arc::new(move |seed| {
        let mut workload = source(seed);
        if answers == Answers::OneToken {
            let sessions = workload.sessions.iter_mut();
            for step in sessions.flat_map(|session| &mut session.steps) {
                step.output_tokens = 1;
            }
        }
        workload
    })
}

fn conclusions(rows: &Rows) -> Vec<Conclusion> {
    let mut conclusions = Vec::new();
    for assumption in &ASSUMPTIONS {
        let ours = goodput(rows, assumption.name, DUAL_MAP);
        let (best, theirs) = best_goodput(rows, assumption.name, &BELOW);
        conclusions.push(Conclusion::claim(
            format!(
                "{}: the paper's order holds: DualMap's goodput is {} requests/s, that of the best of {}, {best}, is {} ({}).",
                assumption.name,
                goodput_shown(rows, assumption.name, DUAL_MAP),
                BELOW.join(", "),
                goodput_shown(rows, assumption.name, best),
                times(ours / theirs)
            ),
            theirs > 0.0 && ours >= theirs * (1.0 + TIE),
        ));
    }
    for assumption in &ASSUMPTIONS {
        conclusions.push(Conclusion::note(cache_hits(rows, assumption)));
    }
    conclusions
}

/// Why, in a sentence: what each finds in caches where the fleet is full.
fn cache_hits(rows: &Rows, assumption: &Assumption) -> String {
    let xs = rows.xs(assumption.name);
    let goodput = best_goodput(rows, assumption.name, &BELOW).1;
    let (rate, place) = match xs.iter().copied().find(|x| *x > goodput) {
        Some(rate) => (rate, "where the best of the others is past its goodput"),
        None => (
            xs.last().copied().unwrap_or(0.0),
            "the highest rate, at which the best of the others is not past its goodput",
        ),
    };
    let of = |system: &str| {
        let share = rows.mean(assumption.name, system, rate, hits);
        format!("{system} {}", percent(share))
    };
    format!(
        "{}, at {} requests/s, {place}, prompt tokens found in caches: {}.",
        assumption.name,
        short(rate),
        SYSTEMS.map(of).join(", ")
    )
}

fn sections(rows: &Rows) -> Vec<Section> {
    let columns = core::iter::once("assumption").chain(SYSTEMS);
    let table = Table::new(columns).with_rows(ASSUMPTIONS.iter().map(|one| {
        let goodput = |system: &&str| goodput_shown(rows, one.name, system);
        core::iter::once(one.name.to_owned())
            .chain(SYSTEMS.iter().map(goodput))
            .collect::<Vec<_>>()
    }));
    let overview = Section::detail("Goodput under each assumption, requests/s")
        .text("Compare along a line; rates of different lines are those of different engines.")
        .table(table);
    let charts = Charts {
        rows,
        systems: &SYSTEMS,
    };
    let section = |one: &Assumption| {
        let chart = |title, y, figure| {
            let axes = Axes {
                x: "requests/s",
                y,
                ..Axes::default()
            };
            charts.lines((title, ""), one.name, axes, figure)
        };
        Section::detail(one.name)
            .text(format!("{}.", one.what))
            .charts(vec![
                chart(
                    "Effective request capacity",
                    "share within 5 s",
                    attainment as Figure,
                ),
                chart("Cache hits", "share", hits),
            ])
    };
    core::iter::once(overview)
        .chain(ASSUMPTIONS.iter().map(section))
        .collect()
}
