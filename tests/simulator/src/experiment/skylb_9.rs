//! SkyLB, Figure 9: what selective pushing gives, by itself.
//!
//! One region, 4 replicas, 30 clients, trees of 2 branches; three rules for pushing: at once (BP), below a fixed number of
//! outstanding requests (SP-O), by pending requests (SP-P). The paper's balancer is SGLang's policy (`cache_aware`);
//! SkyLB's own (`prefix_tree`) is beside it.
//!
//! The paper leaves open how long thoughts are and how long it ran, and both decide: pushing matters only when an engine's
//! memory fills. It says that memory fills at 20 to 50 requests, so the thoughts are as long here as makes it do so. What
//! other lengths and times give is shown as well.
//!
//! Nor does it say which number SP-O had. A fixed number has to be chosen somewhere; here it is the one with the highest
//! throughput for conversations on the same replicas, which is what an operator would have had before the trees came. Other
//! conversations would have given other numbers; they are shown too.

use core::time::Duration;

use isotherm_engine::model::presets::Preset;
use isotherm_report::chart::Scale;
use isotherm_report::number::{percent, short, times};
use isotherm_router::{PolicyName, Push};

use super::document::{Document, Finding, Section, Table};
use super::explain;
use super::lab::{Case, Draw, Lab, config};
use super::paper::{Against, Stated};
use super::picture::{Axes, bars, boxes, e2e, lines, ttft};
use super::rows::{Row, Rows};
use super::workloads::{self, LongTrees};
use crate::{Balancing, Setup};

const SEEDS: u64 = 5;
const FEWER_SEEDS: u64 = 3;
const REPLICAS: usize = 4;
const CLIENTS: usize = 30;
const BLIND: &str = "BP";
const LIMITED: &str = "SP-O";
const PENDING: &str = "SP-P";
const SYSTEMS: [&str; 3] = [BLIND, LIMITED, PENDING];
/// The policies, as the groups of the figure.
const SGLANG: (&str, PolicyName) = ("ToT, cache_aware", PolicyName::CacheAware);
const SKYLB: (&str, PolicyName) = ("ToT, prefix_tree", PolicyName::PrefixTree);
const POLICIES: [(&str, PolicyName); 2] = [SGLANG, SKYLB];
/// Thoughts of this median fill the memory of 4 replicas with 30 clients' trees.
const THOUGHT_TOKENS: f64 = 250.0;
const LENGTH: Duration = Duration::from_secs(120);
/// Limits that are tried, requests a replica.
const LIMITS: [u32; 9] = [4, 8, 12, 16, 24, 32, 40, 48, 64];
/// Where a limit may be chosen: conversations with so many clients. The first is the choice: the replicas are well used and
/// everybody is answered at once.
const CHATS: [(&str, usize); 4] = [
    ("WildChat, 60 clients", 60),
    ("WildChat, 120 clients", 120),
    ("ChatBot Arena, 120 clients", 120),
    ("ChatBot Arena, 240 clients", 240),
];
const THOUGHTS: [f64; 5] = [100.0, 150.0, 200.0, 250.0, 300.0];
const LENGTHS_S: [f64; 4] = [60.0, 120.0, 240.0, 480.0];
const SOURCE: &str = "SkyLB, section 5.2, text on Figure 9";

/// Runs it.
pub(super) fn run(lab: &Lab) -> anyhow::Result<Document> {
    let limits = lab.points(&LIMITS);
    let chats = chats(lab, &limits);
    let chosen = best(&chats, CHATS[0].0, &limits);
    let trees = trees(lab, chosen);
    let limited = over_limits(lab, &limits);
    let thoughts = over_thoughts(lab);
    let lengths = over_lengths(lab);
    let groups = POLICIES.map(|(group, _)| group);
    let cells: Vec<(&str, &str, f64)> = groups
        .iter()
        .flat_map(|group| SYSTEMS.map(|system| (*group, system, 0.0)))
        .collect();
    let pair = [BLIND, PENDING];
    let turned =
        |title, rows: &Rows, (group, x, y): (&str, &'static str, &'static str), scale, figure| {
            let axes = Axes {
                x,
                y,
                scale,
                mark: None,
            };
            lines((title, group), rows, (group, &pair), &axes, figure)
        };
    let mut charts = Vec::new();
    for group in groups {
        let thought = "median length of a thought, tokens";
        charts.push(turned(
            "Throughput over the length of thoughts",
            &thoughts,
            (group, thought, "tokens/s"),
            Scale::Linear,
            tokens,
        )?);
        charts.push(turned(
            "p90 TTFT over the length of thoughts",
            &thoughts,
            (group, thought, "seconds"),
            Scale::Log,
            p90,
        )?);
        let length = "length of the run, s";
        charts.push(turned(
            "Throughput over the length of the run",
            &lengths,
            (group, length, "tokens/s"),
            Scale::Linear,
            tokens,
        )?);
        charts.push(turned(
            "p90 TTFT over the length of the run",
            &lengths,
            (group, length, "seconds"),
            Scale::Log,
            p90,
        )?);
    }
    let sections = vec![
        Section {
            title: "Throughput, TTFT and end-to-end time (Figure 9)".into(),
            text: format!("SP-O with a limit of {chosen}, the best for conversations."),
            key: SYSTEMS.map(String::from).into(),
            charts: vec![
                bars(("Throughput, tokens/s", "Prompt and output tokens of answered requests. More is better."), &trees, (&groups, &SYSTEMS), (tokens, short))?,
                boxes(("Time to first token", "Logarithmic, as in the paper. Less is better."), &trees, (&groups, &SYSTEMS), (Scale::Log, ttft))?,
                boxes(("End-to-end time", "Less is better."), &trees, (&groups, &SYSTEMS), (Scale::Linear, e2e))?,
                bars(("Cache hits", "Share of prompt tokens found in caches."), &trees, (&groups, &SYSTEMS), (hits, percent))?,
            ],
            table: Some(explain::table(&trees, &cells)),
        },
        Section {
            title: "Which limit?".into(),
            text: "Left: trees under each limit. The table: the limit with the highest throughput for each kind of conversation, and what SP-P has over it on the trees.".into(),
            key: vec![LIMITED.into()],
            charts: vec![
                lines(("Trees: throughput over the limit", SGLANG.0), &limited, (SGLANG.0, &[LIMITED]), &LIMIT_AXES, tokens)?,
                lines(("Conversations: throughput over the limit", CHATS[0].0), &chats, (CHATS[0].0, &[LIMITED]), &LIMIT_AXES, tokens)?,
            ],
            table: Some(choices(&chats, &limited, &trees, &limits)),
        },
        Section {
            title: "What the result hangs on".into(),
            text: "Short thoughts never fill the memory: then nothing is ever pending and both rules are the same. In a longer run the clients, who all begin \
                   within 5 s, fall out of step, and the peaks that fill it become rare."
                .into(),
            key: pair.map(String::from).into(),
            charts,
            ..Section::default()
        },
    ];
    let findings = findings(&trees, chosen, &thoughts, &lengths);
    let paper = paper(&trees);
    let rows = Rows(
        [
            trees.0,
            sweep(limited, "limit"),
            chats.0,
            sweep(thoughts, "thought tokens"),
            sweep(lengths, "run seconds"),
        ]
        .concat(),
    );
    Ok(Document {
        name: "skylb-9",
        title: "SkyLB, Figure 9: blind pushing, a limit of outstanding requests, pending requests"
            .into(),
        about: vec![
            format!(
                "{REPLICAS} replicas (Llama-3.1-8B on one L4 each) and {CLIENTS} clients in one region, each client with one tree of thoughts after the \
                 other (2 branches, 15 requests a tree) for {} s. Policy: SGLang's cache_aware, as in the paper, and SkyLB's prefix_tree. Only the rule for pushing \
                 differs.",
                LENGTH.as_secs()
            ),
            format!(
                "Thoughts have a median of {THOUGHT_TOKENS} tokens: the paper does not say how long they are, but that an L4 is full at 20 to 50 requests, \
                 and with them it is. SP-O's limit is the one of {LIMITS:?} with the highest throughput on {}.",
                CHATS[0].0
            ),
        ],
        paper,
        findings,
        sections,
        rows,
    })
}

/// The rows with what was turned in the name of their group: in a file, one group turns one thing.
fn sweep(mut rows: Rows, turned: &str) -> Vec<Row> {
    for row in &mut rows.0 {
        row.group = format!("{}, over {turned}", row.group);
    }
    rows.0
}

const LIMIT_AXES: Axes = Axes {
    x: "outstanding requests a replica, at most",
    y: "tokens/s",
    scale: Scale::Linear,
    mark: None,
};

fn tokens(row: &Row) -> f64 {
    row.summary.throughput_tokens_per_s
}

fn p90(row: &Row) -> f64 {
    row.summary.ttft_p90_s
}

fn hits(row: &Row) -> f64 {
    row.summary.hit_ratio
}

fn case(
    (group, policy): (&str, PolicyName),
    system: &str,
    x: f64,
    push: Push,
    draw: &Draw,
) -> Case {
    let balancing = Balancing::Router(config(policy, push));
    Case {
        group: group.to_owned(),
        system: system.to_owned(),
        x,
        setup: Setup::one_region(Preset::Llama31_8bL4.config(), REPLICAS, balancing),
        draw: draw.clone(),
    }
}

fn grown(lab: &Lab, thought_tokens: f64, duration: Duration) -> Draw {
    let long = LongTrees {
        clients: CLIENTS,
        thought_tokens,
        duration,
    };
    workloads::long_trees(lab.effort(), long)
}

/// The figure itself.
fn trees(lab: &Lab, chosen: u32) -> Rows {
    let draw = grown(lab, THOUGHT_TOKENS, LENGTH);
    let pushes = [
        Push::Blind,
        Push::Outstanding { max: chosen },
        Push::Pending,
    ];
    let cases: Vec<Case> = POLICIES
        .into_iter()
        .flat_map(|policy| {
            SYSTEMS
                .into_iter()
                .zip(pushes)
                .map(move |(system, push)| (policy, system, push))
        })
        .map(|(policy, system, push)| case(policy, system, 0.0, push, &draw))
        .collect();
    lab.run(SEEDS, &cases)
}

/// SP-O with each limit, on the same trees.
fn over_limits(lab: &Lab, limits: &[u32]) -> Rows {
    let draw = grown(lab, THOUGHT_TOKENS, LENGTH);
    let cases: Vec<Case> = limits
        .iter()
        .map(|&max| {
            case(
                SGLANG,
                LIMITED,
                f64::from(max),
                Push::Outstanding { max },
                &draw,
            )
        })
        .collect();
    lab.run(FEWER_SEEDS, &cases)
}

/// SP-O with each limit, on conversations.
fn chats(lab: &Lab, limits: &[u32]) -> Rows {
    let mut cases = Vec::new();
    for (name, clients) in CHATS {
        let draw = if name.starts_with("WildChat") {
            workloads::wildchat(lab.effort(), &[clients])
        } else {
            workloads::arena(lab.effort(), &[clients])
        };
        for &max in limits {
            let push = Push::Outstanding { max };
            cases.push(case((name, SGLANG.1), LIMITED, f64::from(max), push, &draw));
        }
    }
    lab.run(FEWER_SEEDS, &cases)
}

/// BP and SP-P while something else is turned.
fn turned(lab: &Lab, points: &[(f64, Draw)]) -> Rows {
    let mut cases = Vec::new();
    for (x, draw) in points {
        for policy in POLICIES {
            cases.push(case(policy, BLIND, *x, Push::Blind, draw));
            cases.push(case(policy, PENDING, *x, Push::Pending, draw));
        }
    }
    lab.run(FEWER_SEEDS, &cases)
}

fn over_thoughts(lab: &Lab) -> Rows {
    let points = lab.points(&THOUGHTS);
    let points = points
        .iter()
        .map(|&median| (median, grown(lab, median, LENGTH)));
    turned(lab, &points.collect::<Vec<_>>())
}

fn over_lengths(lab: &Lab) -> Rows {
    let points = lab.points(&LENGTHS_S);
    let points = points.iter().map(|&length| {
        (
            length,
            grown(lab, THOUGHT_TOKENS, Duration::from_secs_f64(length)),
        )
    });
    turned(lab, &points.collect::<Vec<_>>())
}

/// The limit with the highest throughput; of equal ones the smallest.
fn best(rows: &Rows, group: &str, limits: &[u32]) -> u32 {
    let of = |limit: u32| rows.mean(group, LIMITED, f64::from(limit), tokens);
    limits
        .iter()
        .copied()
        .rev()
        .max_by(|a, b| of(*a).total_cmp(&of(*b)))
        .unwrap_or(1)
}

fn choices(chats: &Rows, limited: &Rows, trees: &Rows, limits: &[u32]) -> Table {
    let gain = |limit: u32, figure: fn(&Row) -> f64| {
        trees.mean(SGLANG.0, PENDING, 0.0, figure)
            / limited.mean(SGLANG.0, LIMITED, f64::from(limit), figure)
    };
    let line = |name: &str, limit: u32| {
        vec![
            name.to_owned(),
            limit.to_string(),
            times(gain(limit, tokens)),
            times(1.0 / gain(limit, p90)),
        ]
    };
    let mut lines: Vec<Vec<String>> = CHATS
        .iter()
        .map(|(name, _)| line(name, best(chats, name, limits)))
        .collect();
    lines.push(line("these very trees", best(limited, SGLANG.0, limits)));
    Table {
        heads: [
            "chosen on",
            "limit",
            "throughput of SP-P over SP-O with it",
            "p90 TTFT of SP-O with it over SP-P",
        ]
        .map(String::from)
        .into(),
        lines,
    }
}

fn paper(rows: &Rows) -> Vec<Against> {
    let mut against = Vec::new();
    for (group, _) in POLICIES {
        let ratio = |pair, figure: fn(&Row) -> f64| rows.ratio(group, pair, 0.0, figure);
        let hits = |system| rows.mean(group, system, 0.0, hits);
        against.extend([
            Against::one(
                format!("{group}: throughput of SP-P over BP"),
                Stated::times(1.27, SOURCE),
                ratio((PENDING, BLIND), tokens),
            ),
            Against::one(
                format!("{group}: throughput of SP-P over SP-O"),
                Stated::times(1.4, SOURCE),
                ratio((PENDING, LIMITED), tokens),
            ),
            Against::one(
                format!("{group}: p90 TTFT of BP over SP-P"),
                Stated::times(18.47, SOURCE),
                ratio((BLIND, PENDING), p90),
            ),
            Against::one(
                format!("{group}: cache hits of SP-P"),
                Stated::share(0.8986, SOURCE),
                hits(PENDING),
            ),
            Against::one(
                format!("{group}: cache hits of BP"),
                Stated::share(0.6889, SOURCE),
                hits(BLIND),
            ),
        ]);
    }
    against
}

/// What is hoped for: most of the way to the paper's numbers.
const GAIN_MIN: f64 = 1.2;
const P90_GAIN_MIN: f64 = 5.0;

fn findings(trees: &Rows, chosen: u32, thoughts: &Rows, lengths: &Rows) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (group, _) in POLICIES {
        let ratio = |pair, figure: fn(&Row) -> f64| trees.ratio(group, pair, 0.0, figure);
        let blind = ratio((PENDING, BLIND), tokens);
        let limited = ratio((PENDING, LIMITED), tokens);
        let sooner = ratio((BLIND, PENDING), p90);
        findings.extend([
            Finding::claim(
                format!("{group}: SP-P has at least {GAIN_MIN} times the throughput of BP: {}.", times(blind)),
                blind >= GAIN_MIN,
            ),
            Finding::claim(
                format!("{group}: SP-P's p90 TTFT is lower than BP's by at least {P90_GAIN_MIN} times: {}.", times(sooner)),
                sooner >= P90_GAIN_MIN,
            ),
            Finding::claim(
                format!(
                    "{group}: SP-P has at least {GAIN_MIN} times the throughput of SP-O with the limit that is best for {} ({chosen}): {}.",
                    CHATS[0].0,
                    times(limited)
                ),
                limited >= GAIN_MIN,
            ),
        ]);
    }
    for (group, _) in POLICIES {
        findings.push(Finding::note(explain::beside(
            trees,
            group,
            0.0,
            (PENDING, BLIND),
        )));
        findings.push(Finding::note(explain::beside(
            trees,
            group,
            0.0,
            (PENDING, LIMITED),
        )));
        findings.push(Finding::note(over(group, thoughts, "tokens a thought")));
        findings.push(Finding::note(over(group, lengths, "s of run")));
    }
    findings
}

/// SP-P against BP over what was turned.
fn over(group: &str, rows: &Rows, unit: &str) -> String {
    let parts: Vec<String> = rows
        .xs(group)
        .into_iter()
        .map(|x| {
            format!(
                "{} {unit}: throughput {}, p90 TTFT {} lower, replicas' requests outside the batch under BP {}",
                short(x),
                times(rows.ratio(group, (PENDING, BLIND), x, tokens)),
                times(rows.ratio(group, (BLIND, PENDING), x, p90)),
                short(rows.mean(group, BLIND, x, explain::load("engine_waiting_mean")))
            )
        })
        .collect();
    format!("{group}, SP-P against BP. {}.", parts.join("; "))
}
