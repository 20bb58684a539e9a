//! SkyLB, Figure 9: what selective pushing gives, by itself.
//!
//! One region, 4 replicas, 30 clients, trees of 2 branches; the balancer is SGLang's policy (`cache_aware`) with three rules
//! for pushing: at once (BP), below a fixed number of outstanding requests (SP-O), by pending requests (SP-P).
//!
//! The paper does not say which number SP-O had. A fixed number has to be chosen somewhere; here it is the best of a
//! conversation workload on the same replicas, which is what an operator would have done before the trees came. The
//! best number of the trees themselves is shown as well: nobody can know it beforehand.

use isotherm_engine::model::presets::Preset;
use isotherm_report::chart::Scale;
use isotherm_report::number::{percent, short, times};
use isotherm_router::{PolicyName, Push};

use super::document::{Document, Finding, Section};
use super::explain;
use super::lab::{Case, Draw, Lab, config};
use super::paper::{Against, Stated};
use super::picture::{Axes, bars, boxes, e2e, lines, ttft};
use super::rows::{Row, Rows};
use super::workloads;
use crate::{Balancing, Setup};

const SEEDS: u64 = 5;
const REPLICAS: usize = 4;
const CLIENTS: usize = 30;
const TREES: &str = "ToT";
const CHAT: &str = "conversations";
const BLIND: &str = "BP";
const LIMITED: &str = "SP-O";
const PENDING: &str = "SP-P";
const SYSTEMS: [&str; 3] = [BLIND, LIMITED, PENDING];
/// Limits that are tried, requests a replica.
const LIMITS: [u32; 10] = [1, 2, 4, 6, 8, 12, 16, 24, 32, 48];
const SOURCE: &str = "SkyLB, section 5.2, text on Figure 9";

/// Runs it.
pub(super) fn run(lab: &Lab) -> anyhow::Result<Document> {
    let trees = workloads::trees(lab.effort(), &[(2, CLIENTS)]);
    let chat = workloads::arena(lab.effort(), &[CLIENTS]);
    let limits = lab.points(&LIMITS);
    let swept = sweep(lab, &limits, &[(CHAT, &chat), (TREES, &trees)]);
    let chosen = best(&swept, CHAT, &limits);
    let knowing = best(&swept, TREES, &limits);

    let outstanding = |max| Push::Outstanding { max };
    let mut rows = lab.run(
        SEEDS,
        &[
            case(TREES, BLIND, 0.0, Push::Blind, &trees),
            case(TREES, LIMITED, 0.0, outstanding(chosen), &trees),
            case(TREES, PENDING, 0.0, Push::Pending, &trees),
        ],
    );
    let sections = vec![
        Section {
            title: "Throughput, TTFT and end-to-end time (Figure 9)".into(),
            text: format!("SP-O with a limit of {chosen}, the best for conversations."),
            key: SYSTEMS.map(String::from).into(),
            charts: vec![
                bars(
                    (
                        "Throughput, tokens/s",
                        "Prompt and output tokens of answered requests. More is better.",
                    ),
                    &rows,
                    (&[TREES], &SYSTEMS),
                    (tokens, short),
                )?,
                boxes(
                    (
                        "Time to first token",
                        "Logarithmic, as in the paper. Less is better.",
                    ),
                    &rows,
                    (&[TREES], &SYSTEMS),
                    (Scale::Log, ttft),
                )?,
                boxes(
                    ("End-to-end time", "Less is better."),
                    &rows,
                    (&[TREES], &SYSTEMS),
                    (Scale::Linear, e2e),
                )?,
                bars(
                    ("Cache hits", "Share of prompt tokens found in caches."),
                    &rows,
                    (&[TREES], &SYSTEMS),
                    (|row| row.summary.hit_ratio, percent),
                )?,
            ],
            table: Some(explain::table(
                &rows,
                &SYSTEMS.map(|system| (TREES, system, 0.0)),
            )),
        },
        Section {
            title: "Which limit?".into(),
            text: format!(
                "A limit for conversations is best at {chosen}, one for trees at {knowing}. Pending requests need no number."
            ),
            charts: vec![
                lines(
                    (
                        "Conversations: throughput over the limit",
                        "Where SP-O's limit was chosen.",
                    ),
                    &swept,
                    (CHAT, &[LIMITED]),
                    &AXES,
                    tokens,
                )?,
                lines(
                    (
                        "Trees: throughput over the limit",
                        "What the same limits would give here.",
                    ),
                    &swept,
                    (TREES, &[LIMITED]),
                    &AXES,
                    tokens,
                )?,
            ],
            ..Section::default()
        },
    ];
    let findings = findings(&rows, &swept, chosen, knowing);
    let paper = paper(&rows);
    rows.0.extend(swept.0);
    Ok(Document {
        name: "skylb-9",
        title: "SkyLB, Figure 9: blind pushing, a limit of outstanding requests, pending requests"
            .into(),
        about: vec![
            format!(
                "{REPLICAS} replicas (Llama-3.1-8B on one L4 each) and {CLIENTS} clients in one region, each client with one tree of thoughts after the \
                 other (2 branches, 15 requests a tree). Policy: cache_aware, SGLang's. Only the rule for pushing differs."
            ),
            format!(
                "SP-O's limit is chosen on another workload: of {LIMITS:?}, the one with the highest throughput for {CLIENTS} clients who hold conversations \
                 with the same replicas."
            ),
        ],
        paper,
        findings,
        sections,
        rows,
    })
}

const AXES: Axes = Axes {
    x: "outstanding requests a replica, at most",
    y: "tokens/s",
    scale: Scale::Linear,
    mark: None,
};

fn tokens(row: &Row) -> f64 {
    row.summary.throughput_tokens_per_s
}

fn case(group: &str, system: &str, x: f64, push: Push, draw: &Draw) -> Case {
    let balancing = Balancing::Router(config(PolicyName::CacheAware, push));
    Case {
        group: group.to_owned(),
        system: system.to_owned(),
        x,
        setup: Setup::one_region(Preset::Llama31_8bL4.config(), REPLICAS, balancing),
        draw: draw.clone(),
    }
}

fn sweep(lab: &Lab, limits: &[u32], workloads: &[(&str, &Draw)]) -> Rows {
    let mut cases = Vec::new();
    for (group, draw) in workloads {
        for &max in limits {
            let push = Push::Outstanding { max };
            cases.push(case(group, LIMITED, f64::from(max), push, draw));
        }
    }
    lab.run(2, &cases)
}

/// The limit with the highest throughput.
fn best(swept: &Rows, group: &str, limits: &[u32]) -> u32 {
    let of = |limit: &u32| swept.mean(group, LIMITED, f64::from(*limit), tokens);
    limits
        .iter()
        .copied()
        .max_by(|a, b| of(a).total_cmp(&of(b)))
        .unwrap_or(1)
}

fn paper(rows: &Rows) -> Vec<Against> {
    let ratio = |pair, figure: fn(&Row) -> f64| rows.ratio(TREES, pair, 0.0, figure);
    let p90 = |row: &Row| row.summary.ttft_p90_s;
    let hits = |system| rows.mean(TREES, system, 0.0, |row| row.summary.hit_ratio);
    vec![
        Against::one(
            "throughput of SP-P over BP",
            Stated::times(1.27, SOURCE),
            ratio((PENDING, BLIND), tokens),
        ),
        Against::one(
            "throughput of SP-P over SP-O",
            Stated::times(1.4, SOURCE),
            ratio((PENDING, LIMITED), tokens),
        ),
        Against::one(
            "p90 TTFT of BP over SP-P",
            Stated::times(18.47, SOURCE),
            ratio((BLIND, PENDING), p90),
        ),
        Against::one(
            "cache hits of SP-P",
            Stated::share(0.8986, SOURCE),
            hits(PENDING),
        ),
        Against::one(
            "cache hits of BP",
            Stated::share(0.6889, SOURCE),
            hits(BLIND),
        ),
    ]
}

/// What is hoped for: half way to the paper's numbers and more.
const GAIN_MIN: f64 = 1.2;
const P90_GAIN_MIN: f64 = 5.0;

fn findings(rows: &Rows, swept: &Rows, chosen: u32, knowing: u32) -> Vec<Finding> {
    let ratio = |pair, figure: fn(&Row) -> f64| rows.ratio(TREES, pair, 0.0, figure);
    let over_blind = ratio((PENDING, BLIND), tokens);
    let over_limited = ratio((PENDING, LIMITED), tokens);
    let p90 = ratio((BLIND, PENDING), |row| row.summary.ttft_p90_s);
    let with_hindsight = rows.mean(TREES, PENDING, 0.0, tokens)
        / swept.mean(TREES, LIMITED, f64::from(knowing), tokens);
    vec![
        Finding::claim(
            format!(
                "SP-P has at least {GAIN_MIN} times the throughput of BP: {}.",
                times(over_blind)
            ),
            over_blind >= GAIN_MIN,
        ),
        Finding::claim(
            format!(
                "SP-P's p90 TTFT is lower than BP's by at least {P90_GAIN_MIN} times: {}.",
                times(p90)
            ),
            p90 >= P90_GAIN_MIN,
        ),
        Finding::claim(
            format!(
                "SP-P has at least {GAIN_MIN} times the throughput of SP-O with the limit that is best for conversations ({chosen}): {}.",
                times(over_limited)
            ),
            over_limited >= GAIN_MIN,
        ),
        Finding::note(format!(
            "Against the limit that is best for these very trees ({knowing}), SP-P has {} the throughput.",
            times(with_hindsight)
        )),
        Finding::note(explain::beside(rows, TREES, 0.0, (PENDING, BLIND))),
        Finding::note(explain::beside(rows, TREES, 0.0, (PENDING, LIMITED))),
    ]
}
