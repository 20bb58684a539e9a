//! SkyLB, Figure 8: four workloads, seven systems, three regions.
//!
//! The systems of the paper, made of our parts:
//! - GKE Gateway: each region serves its own clients in turn, pushing at once. The paper's description (a general-purpose
//!   gateway in each region, no prefixes, no selective pushing) leaves open how it balances; the hit ratio that it reports,
//!   between those of one round robin and one least-load balancer over all replicas, is what round robin over a third of the
//!   replicas gives.
//! - RR, LL, CH, SGL: one balancer in the first region for the replicas of all, pushing at once.
//! - SkyLB-CH, SkyLB: one balancer a region, forwarding, pushing by pending requests.
//!
//! Conversations run on the paper's unbalanced fleet (3, 2 and 3 replicas), trees on the balanced one (4 each): of the
//! trees the paper says so, of the conversations it only says that both fleets were used.

use isotherm_engine::model::presets::Preset;
use isotherm_report::chart::Scale;
use isotherm_report::number::{percent, short};
use isotherm_router::{PolicyName, Push};

use super::document::{Document, Section};
use super::explain;
use super::figure::{hits, p50, p90, tokens};
use super::lab::{Case, Draw, Lab, config};
use super::paper::{Against, Stated, Unit};
use super::picture::{bars, boxes, e2e, ttft};
use super::rows::{Row, Rows};
use super::workloads;
use crate::{Balancing, RegionSetup, Setup};
use isotherm_report::Conclusion;

const SEEDS: u64 = 3;
const US: usize = 0;
const ARENA: &str = "ChatBot Arena";
const WILDCHAT: &str = "WildChat";
const TREES: &str = "ToT";
const MIXED: &str = "Mixed Tree";
const GROUPS: [&str; 4] = [ARENA, WILDCHAT, TREES, MIXED];
const SYSTEMS: [&str; 7] = ["GKE Gateway", "RR", "LL", "CH", "SGL", "SkyLB-CH", "SkyLB"];
const SINGLE: [&str; 4] = ["RR", "LL", "CH", "SGL"];
const SOURCE: &str = "SkyLB, section 5.1, text on Figure 8";

/// Runs it.
pub(super) fn run(lab: &Lab) -> anyhow::Result<Document> {
    let rows = lab.run(SEEDS, &cases(lab));
    let sections = vec![
        Section {
            title: "Throughput (Figures 8a to 8d)".into(),
            key: SYSTEMS.map(String::from).into(),
            charts: GROUPS
                .iter()
                .map(|group| {
                    bars(
                        (group, "Prompt and output tokens per second of answered requests."),
                        &rows,
                        (&[group], &SYSTEMS),
                        (tokens, short),
                    )
                })
                .collect::<anyhow::Result<_>>()?,
            ..Section::default()
        },
        Section {
            title: "Time to first token (8e to 8h) and end to end (8i to 8l)".into(),
            text: "Box: 25th to 75th percentile, line: median, whiskers: 10th and 90th, triangle: mean. The left axis of the first is logarithmic.".into(),
            key: SYSTEMS.map(String::from).into(),
            charts: GROUPS
                .iter()
                .flat_map(|group| {
                    [
                        boxes((&format!("{group}: TTFT"), "Less is better."), &rows, (&[group], &SYSTEMS), (Scale::Log, ttft)),
                        boxes((&format!("{group}: end to end"), "Less is better."), &rows, (&[group], &SYSTEMS), (Scale::Linear, e2e)),
                    ]
                })
                .collect::<anyhow::Result<_>>()?,
            ..Section::default()
        },
        Section {
            title: "Cache hits".into(),
            key: SYSTEMS.map(String::from).into(),
            charts: vec![bars(("All workloads", "Share of prompt tokens found in caches."), &rows, (&GROUPS, &SYSTEMS), (hits, percent))?],
            table: Some(explain::table(
                &rows,
                &GROUPS
                    .iter()
                    .flat_map(|group| SYSTEMS.iter().map(move |system| (*group, *system, 0.0)))
                    .collect::<Vec<_>>(),
            )),
            ..Section::default()
        },
    ];
    Ok(Document {
        name: "skylb-8",
        title: "SkyLB, Figure 8: four workloads, seven systems".into(),
        about: vec![
            "Replicas: Llama-3.1-8B on one L4 each, in three regions 75 ms apart. Conversations: 3, 2 and 3 replicas in the US, Europe and \
             Asia; ChatBot Arena with 80 clients a region, WildChat with 40, 30 and 30. Trees: 4 replicas a region; 2 branches (15 requests a tree) \
             with 40, 20 and 20 clients; mixed: 2 clients with 4 branches (85 requests a tree) in the US, 20 clients with 2 branches in each other \
             region."
                .into(),
            "RR, LL, CH and SGL are one balancer in the US that pushes at once; GKE Gateway is round robin within each region; SkyLB and SkyLB-CH are \
             one balancer a region, with forwarding and pushing by pending requests. The conversations are synthetic, with the sharing that the paper \
             measured in the data sets (its Figure 5)."
                .into(),
        ],
        paper: paper(&rows),
        findings: findings(&rows),
        sections,
        rows,
    })
}

fn cases(lab: &Lab) -> Vec<Case> {
    let workloads: [(&str, [usize; 3], Draw); 4] = [
        (
            ARENA,
            [3, 2, 3],
            workloads::arena(lab.effort(), &[80, 80, 80]),
        ),
        (
            WILDCHAT,
            [3, 2, 3],
            workloads::wildchat(lab.effort(), &[40, 30, 30]),
        ),
        (
            TREES,
            [4, 4, 4],
            workloads::trees(lab.effort(), &[(2, 40), (2, 20), (2, 20)]),
        ),
        (
            MIXED,
            [4, 4, 4],
            workloads::trees(lab.effort(), &[(4, 2), (2, 20), (2, 20)]),
        ),
    ];
    let mut cases = Vec::new();
    for (group, replicas, draw) in workloads {
        for system in SYSTEMS {
            cases.push(Case {
                group: group.to_owned(),
                system: system.to_owned(),
                x: 0.0,
                setup: setup(&replicas, balancing(system)),
                draw: draw.clone(),
            });
        }
    }
    cases
}

fn balancing(system: &str) -> Balancing {
    let central = |policy| Balancing::Central {
        config: config(policy, Push::Blind),
        region: US,
    };
    match system {
        "RR" => central(PolicyName::RoundRobin),
        "LL" => central(PolicyName::LeastOutstanding),
        "CH" => central(PolicyName::ConsistentHash),
        "SGL" => central(PolicyName::CacheAware),
        "SkyLB-CH" => Balancing::Router(config(PolicyName::ConsistentHash, Push::Pending)),
        "SkyLB" => Balancing::Router(config(PolicyName::PrefixTree, Push::Pending)),
        _ => Balancing::RegionLocal(config(PolicyName::RoundRobin, Push::Blind)),
    }
}

/// Replicas of the paper in its three regions.
pub(super) fn setup(replicas: &[usize; 3], balancing: Balancing) -> Setup {
    let engine = Preset::Llama31_8bL4.config();
    let regions = ["us", "europe", "asia"]
        .into_iter()
        .zip(replicas)
        .map(|(name, &count)| RegionSetup::new(name, engine, count))
        .collect();
    Setup::regions(regions, balancing)
}

fn paper(rows: &Rows) -> Vec<Against> {
    let over = |groups: &[&str], ours: &str, theirs: &[&str], figure: fn(&Row) -> f64| {
        let mut ratios = Vec::new();
        for group in groups {
            for their in theirs {
                ratios.push(rows.ratio(group, (ours, their), 0.0, figure));
            }
        }
        ratios
    };
    let found = |groups: &[&str], system| -> Vec<f64> {
        groups
            .iter()
            .map(|group| rows.mean(group, system, 0.0, hits))
            .collect()
    };
    let chats = [ARENA, WILDCHAT];
    let trees = [TREES, MIXED];
    let range = |low, high| Stated::range(low, high, Unit::Times, SOURCE);
    let share = |low, high| Stated::range(low, high, Unit::Share, SOURCE);
    let baselines = ["GKE Gateway", "RR", "LL", "CH", "SGL"];
    vec![
        Against::over(
            "conversations: throughput of SkyLB over single balancers",
            range(1.12, 1.2),
            &over(&chats, "SkyLB", &SINGLE, tokens),
        ),
        Against::over(
            "conversations: throughput of LL over SkyLB",
            Stated::share(0.9738, SOURCE),
            &over(&chats, "LL", &["SkyLB"], tokens),
        ),
        Against::over(
            "conversations: throughput of SkyLB over GKE Gateway",
            range(1.43, 1.62),
            &over(&chats, "SkyLB", &["GKE Gateway"], tokens),
        ),
        Against::over(
            "all: throughput of SkyLB over GKE Gateway",
            range(1.43, 2.06),
            &over(&GROUPS, "SkyLB", &["GKE Gateway"], tokens),
        ),
        Against::over(
            "all: throughput of SkyLB over SkyLB-CH",
            range(1.0134, 1.0821),
            &over(&GROUPS, "SkyLB", &["SkyLB-CH"], tokens),
        ),
        Against::over(
            "ToT: throughput of CH over SkyLB",
            Stated::times(1.02, SOURCE),
            &over(&[TREES], "CH", &["SkyLB"], tokens),
        ),
        Against::over(
            "ToT: throughput of CH over LL",
            Stated::times(1.4, SOURCE),
            &over(&[TREES], "CH", &["LL"], tokens),
        ),
        Against::over(
            "conversations: cache hits of RR",
            share(0.1078, 0.1657),
            &found(&chats, "RR"),
        ),
        Against::over(
            "conversations: cache hits of LL",
            share(0.2829, 0.3113),
            &found(&chats, "LL"),
        ),
        Against::over(
            "conversations: cache hits of GKE Gateway",
            share(0.1808, 0.2430),
            &found(&chats, "GKE Gateway"),
        ),
        Against::over(
            "conversations: cache hits of SkyLB",
            share(0.3696, 0.4655),
            &found(&chats, "SkyLB"),
        ),
        Against::over(
            "trees: cache hits of LL and RR",
            share(0.5866, 0.5932),
            &[found(&trees, "LL"), found(&trees, "RR")].concat(),
        ),
        Against::over(
            "trees: cache hits of SkyLB",
            share(0.8956, 0.9001),
            &found(&trees, "SkyLB"),
        ),
        Against::over(
            "all: median TTFT of SkyLB, of baselines'",
            share(0.1587, 0.5763),
            &over(&GROUPS, "SkyLB", &baselines, p50),
        ),
        Against::over(
            "all: mean TTFT of SkyLB, of baselines'",
            share(0.1587, 0.5763),
            &over(&GROUPS, "SkyLB", &baselines, |row| row.summary.ttft_mean_s),
        ),
        Against::over(
            "all: p90 TTFT of SkyLB, of baselines'",
            share(0.1008, 0.2338),
            &over(&GROUPS, "SkyLB", &baselines, p90),
        ),
        Against::over(
            "all: median end-to-end time of baselines over SkyLB's",
            range(1.05, 2.14),
            &over(&GROUPS, "SkyLB", &baselines, |row| row.summary.e2e_p50_s)
                .iter()
                .map(|share| 1.0 / share)
                .collect::<Vec<_>>(),
        ),
    ]
}

fn findings(rows: &Rows) -> Vec<Conclusion> {
    let mut findings = Vec::new();
    for group in GROUPS {
        let best = SYSTEMS
            .into_iter()
            .filter(|system| !system.starts_with("SkyLB"))
            .max_by(|a, b| {
                rows.mean(group, a, 0.0, tokens)
                    .total_cmp(&rows.mean(group, b, 0.0, tokens))
            })
            .unwrap_or("LL");
        findings.push(Conclusion::note(format!(
            "The best baseline is {best}. {}",
            explain::beside(rows, group, 0.0, ("SkyLB", best))
        )));
    }
    findings
}
