//! Which assumption DualMap's advantage rests on.
//!
//! The paper's order is: DualMap above Preble, Min TTFT and Least Loaded at high rates of conversations. Here each
//! assumption behind it is turned by itself, and the same policies are swept over the rate again:
//!
//! - who holds back what an engine cannot start: the router (selective pushing), or nobody (everything is pushed at once, and
//!   waits where it can no longer be moved or reordered);
//! - what the router sees of the engines' load: every 100 ms, every second, never;
//! - the memory that answers take while they are written: none (answers of one token, as on a prefill instance of a
//!   disaggregated system), or a third of the blocks, or four times as many, which also makes the cache smaller or larger.
//!
//! Every policy runs under the same rule in each panel, unlike `dualmap-3`, where the baselines push at once as in the paper.

use core::time::Duration;
use std::sync::Arc;

use isotherm_report::chart::{Chart, Scale};
use isotherm_report::number::{percent, short, times};
use isotherm_router::{PolicyName, Push};

use super::document::{Document, Section, Table};
use super::dualmap::{
    CONVERSATION, DUAL_MAP, GOODPUT_SHARE, LEAST_LOADED, MIN_TTFT, PREBLE, REPLICAS, draw, goodput,
    goodput_shown, policy, setup,
};
use super::figure::{attainment, hits};
use super::lab::{Case, Draw, Lab, config};
use super::picture::{Axes, lines};
use super::rows::{Row, Rows};
use crate::{Balancing, Setup};
use isotherm_report::Conclusion;

const PREFIX_TREE: &str = "prefix_tree";
const SYSTEMS: [&str; 5] = [DUAL_MAP, PREBLE, MIN_TTFT, LEAST_LOADED, PREFIX_TREE];
/// What the paper has below DualMap.
const BELOW: [&str; 3] = [PREBLE, MIN_TTFT, LEAST_LOADED];
const SEEDS: u64 = 1;
/// Of two goodputs that differ by less, none is called higher: the rates are coarser than that.
const TIE: f64 = 0.02;

/// Longer than any run.
const NEVER: Duration = Duration::from_secs(7 * 24 * 3_600);

/// An assumption, turned.
struct Turned {
    name: &'static str,
    /// What is different from the first one.
    what: &'static str,
    rates: &'static [f64],
    push: Push,
    probe_interval: Option<Duration>,
    /// Blocks of KV memory, over those of the engine.
    memory: (u32, u32),
    answers: Answers,
}

/// How long answers are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answers {
    AsRecorded,
    OneToken,
}

const AS_MEASURED: Turned = Turned {
    name: "as it is",
    what: "selective pushing by pending requests, probes every 100 ms, 944,000 tokens of memory an engine",
    rates: &[6.0, 7.0, 8.0, 8.5, 9.0],
    push: Push::Pending,
    probe_interval: None,
    memory: (1, 1),
    answers: Answers::AsRecorded,
};

const TURNED: [Turned; 7] = [
    AS_MEASURED,
    Turned {
        name: "pushed at once",
        what: "every policy pushes at once (blind); engines queue what they cannot start",
        push: Push::Blind,
        ..AS_MEASURED
    },
    Turned {
        name: "stale load",
        what: "probes every second",
        probe_interval: Some(Duration::from_secs(1)),
        ..AS_MEASURED
    },
    Turned {
        name: "pushed at once, no probes",
        what: "blind, and the router sees nothing of the engines: it goes by what it has sent, by how long that should take, and by what ends",
        push: Push::Blind,
        probe_interval: Some(NEVER),
        ..AS_MEASURED
    },
    Turned {
        name: "no answers",
        what: "answers of one token: no memory and no time goes into decoding",
        rates: &[8.0, 10.0, 11.0, 12.0, 13.0],
        answers: Answers::OneToken,
        ..AS_MEASURED
    },
    Turned {
        name: "a third of the memory",
        what: "314,000 tokens an engine",
        rates: &[5.0, 6.0, 7.0, 7.5, 8.0],
        memory: (1, 3),
        ..AS_MEASURED
    },
    Turned {
        name: "four times the memory",
        what: "3.8 million tokens an engine",
        memory: (4, 1),
        ..AS_MEASURED
    },
];

/// Runs it.
pub(super) fn run(lab: &Lab) -> anyhow::Result<Document> {
    let mut cases = Vec::new();
    for turned in &TURNED {
        for rate in lab.points(turned.rates) {
            for system in SYSTEMS {
                cases.push(case(lab, turned, system, rate));
            }
        }
    }
    let rows = lab.run(SEEDS, &cases);
    Ok(Document {
        name: "assumptions",
        title: "DualMap: which assumption makes the difference".into(),
        about: vec![format!(
            "{REPLICAS} replicas (Llama-3.1-8B on two A100 each), conversations. One assumption is turned in each panel, for all policies alike. Goodput: the \
                 highest rate with {} of the requests within 5 s. {}",
            percent(GOODPUT_SHARE),
            super::workloads::described(lab.effort())
        )],
        paper: Vec::new(),
        findings: findings(&rows),
        sections: sections(&rows)?,
        rows,
    })
}

fn case(lab: &Lab, turned: &Turned, system: &str, rate: f64) -> Case {
    let policy = match system {
        PREFIX_TREE => PolicyName::PrefixTree,
        _ => policy(system),
    };
    let mut config = config(policy, turned.push);
    if turned.probe_interval == Some(NEVER) {
        config.probe_stale_after = NEVER;
    }
    let mut setup: Setup = setup(REPLICAS, Balancing::Router(config));
    if let Some(interval) = turned.probe_interval {
        setup.probe_interval = interval;
    }
    let (times, over) = turned.memory;
    for replica in setup
        .regions
        .iter_mut()
        .flat_map(|region| &mut region.replicas)
    {
        replica.config.blocks = replica.config.blocks.saturating_mul(times) / over.max(1);
    }
    Case {
        group: turned.name.to_owned(),
        system: system.to_owned(),
        x: rate,
        setup,
        draw: answered(draw(lab, CONVERSATION, rate), turned.answers),
    }
}

/// The same with answers of this length.
fn answered(draw: Draw, answers: Answers) -> Draw {
    Arc::new(move |seed| {
        let mut workload = draw(seed);
        if answers == Answers::OneToken {
            let sessions = workload.sessions.iter_mut();
            for step in sessions.flat_map(|session| &mut session.steps) {
                step.output_tokens = 1;
            }
        }
        workload
    })
}

/// The highest goodput of those that the paper has below DualMap.
fn best_below(rows: &Rows, group: &str) -> (&'static str, f64) {
    BELOW
        .into_iter()
        .map(|system| (system, goodput(rows, group, system)))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap_or((DUAL_MAP, f64::NAN))
}

fn findings(rows: &Rows) -> Vec<Conclusion> {
    let mut findings = Vec::new();
    for turned in &TURNED {
        let ours = goodput(rows, turned.name, DUAL_MAP);
        let (best, theirs) = best_below(rows, turned.name);
        findings.push(Conclusion::claim(
            format!(
                "{}: the paper's order holds: DualMap's goodput is {} requests/s, that of the best of {}, {best}, is {} ({}).",
                turned.name,
                goodput_shown(rows, turned.name, DUAL_MAP),
                BELOW.join(", "),
                goodput_shown(rows, turned.name, best),
                times(ours / theirs)
            ),
            theirs > 0.0 && ours >= theirs * (1.0 + TIE),
        ));
    }
    for turned in &TURNED {
        findings.push(Conclusion::note(found(rows, turned)));
    }
    findings
}

/// Why, in a sentence: what each finds in caches where the fleet is full.
fn found(rows: &Rows, turned: &Turned) -> String {
    let xs = rows.xs(turned.name);
    let goodput = best_below(rows, turned.name).1;
    let (rate, place) = match xs.iter().copied().find(|x| *x > goodput) {
        Some(rate) => (rate, "where the best of the others is past its goodput"),
        None => (
            xs.last().copied().unwrap_or(0.0),
            "the highest rate, at which the best of the others is not past its goodput",
        ),
    };
    let of = |system: &str| {
        let share = rows.mean(turned.name, system, rate, hits);
        format!("{system} {}", percent(share))
    };
    format!(
        "{}, at {} requests/s, {place}, prompt tokens found in caches: {}.",
        turned.name,
        short(rate),
        SYSTEMS.map(of).join(", ")
    )
}

fn sections(rows: &Rows) -> anyhow::Result<Vec<Section>> {
    let mut sections = vec![Section {
        title: "Goodput under each assumption, requests/s".into(),
        text: "Compare along a line; rates of different lines are those of different engines."
            .into(),
        table: Some(table(rows)),
        ..Section::default()
    }];
    for turned in &TURNED {
        sections.push(Section {
            title: turned.name.to_owned(),
            text: format!("{}.", turned.what),
            key: SYSTEMS.map(String::from).into(),
            charts: vec![
                chart(
                    rows,
                    turned,
                    "Effective request capacity",
                    "share within 5 s",
                    attainment,
                )?,
                chart(rows, turned, "Cache hits", "share", hits)?,
            ],
            table: None,
        });
    }
    Ok(sections)
}

fn chart(
    rows: &Rows,
    turned: &Turned,
    title: &str,
    y: &'static str,
    figure: fn(&Row) -> f64,
) -> anyhow::Result<Chart> {
    let axes = Axes {
        x: "requests/s",
        y,
        scale: Scale::Linear,
        mark: None,
    };
    lines((title, ""), rows, (turned.name, &SYSTEMS), &axes, figure)
}

fn table(rows: &Rows) -> Table {
    let line = |turned: &Turned| {
        let goodputs = SYSTEMS.map(|system| goodput_shown(rows, turned.name, system));
        core::iter::once(turned.name.to_owned())
            .chain(goodputs)
            .collect()
    };
    Table {
        heads: core::iter::once("assumption")
            .chain(SYSTEMS)
            .map(String::from)
            .collect(),
        lines: TURNED.iter().map(line).collect(),
    }
}
