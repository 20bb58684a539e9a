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

mod found;
mod runs;

use core::time::Duration;

use isotherm_report::chart::Scale;
use isotherm_report::number::{percent, short};
use isotherm_router::PolicyName;

use self::found::{best, choices, findings, paper};
use self::runs::{chats, over_lengths, over_limits, over_thoughts, trees};
use super::document::{Document, Section};
use super::explain;
use super::figure::{hits, p90, tokens};
use super::lab::Lab;
use super::picture::{Axes, bars, boxes, e2e, lines, ttft};
use super::rows::{Row, Rows};

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
    let turned = |title: &str,
                  rows: &Rows,
                  (group, x, y): (&str, &'static str, &'static str),
                  scale,
                  figure| {
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
        for (rows, over, x) in [
            (
                &thoughts,
                "the length of thoughts",
                "median length of a thought, tokens",
            ),
            (&lengths, "the length of the run", "length of the run, s"),
        ] {
            let (throughput, soon) = (
                format!("Throughput over {over}"),
                format!("p90 TTFT over {over}"),
            );
            let axes = (group, x, "tokens/s");
            charts.push(turned(&throughput, rows, axes, Scale::Linear, tokens)?);
            let axes = (group, x, "seconds");
            charts.push(turned(&soon, rows, axes, Scale::Log, p90)?);
        }
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
