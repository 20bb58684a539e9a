//! SkyLB, Figure 8: four workloads, the paper's seven systems and two of ours, three regions.
//!
//! The systems of the paper, made of our parts:
//! - GKE Gateway: round robin within each region, pushing at once. The paper leaves open how it balances; its hit ratio is
//!   that of round robin over a third of the replicas.
//! - RR, LL, CH, SGL: one balancer in the first region for the replicas of all, pushing at once.
//! - SkyLB-CH, SkyLB: one balancer a region, forwarding as published (`region.forwarding: published`), pushing by pending
//!   requests.
//!
//! Ours beside them: SkyLB's policy with forwarding by cost, and the default policy with it.
//!
//! Conversations run on the paper's unbalanced fleet (3, 2 and 3 replicas), trees on the balanced one (4 each): the paper says
//! so of the trees, and of the conversations only that both fleets were used.

use isotherm_engine::model::presets::Preset;
use isotherm_policies::PolicyName;
use isotherm_report::{Conclusion, Section};
use isotherm_router::Push;
use isotherm_simulator::{Arrangement, RegionSetup, Setup};

use crate::context::{Case, Context, config, grid, published};
use crate::document::Document;
use crate::explain;
use crate::figures::{E2E, E2E_P50, Figure, HITS, MEAN, P50, P90, TOKENS, TTFT};
use crate::paper::{PaperComparison, Source, Unit};
use crate::rows::{Panel, Rows};
use crate::workloads::{arena, trees, wildchat};

const SEEDS: u64 = 3;
const US: usize = 0;
const ARENA: &str = "ChatBot Arena";
const WILDCHAT: &str = "WildChat";
const TREES: &str = "ToT";
const MIXED: &str = "Mixed Tree";
const GROUPS: [&str; 4] = [ARENA, WILDCHAT, TREES, MIXED];
const SYSTEMS: [&str; 9] = [
    "GKE Gateway",
    "RR",
    "LL",
    "CH",
    "SGL",
    "SkyLB-CH",
    "SkyLB",
    BY_COST,
    OURS,
];
/// SkyLB's policy, which forwards by cost.
pub(crate) const BY_COST: &str = "SkyLB, by cost";
/// The default policy, which forwards by cost.
pub(crate) const OURS: &str = "Isotherm";
const SINGLE: [&str; 4] = ["RR", "LL", "CH", "SGL"];
const BASELINES: [&str; 5] = ["GKE Gateway", "RR", "LL", "CH", "SGL"];
/// Groups that a figure of the paper is over.
type Scope = (&'static str, &'static [&'static str]);
const ALL: Scope = ("all", &GROUPS);
const CHATS: Scope = ("conversations", &[ARENA, WILDCHAT]);
const FORESTS: Scope = ("trees", &[TREES, MIXED]);
const TOT: Scope = ("ToT", &[TREES]);
const SOURCE: Source = Source("SkyLB, section 5.1, text on Figure 8");

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let rows = context.run(SEEDS, &cases(context));
    let sections = vec![
        Section::detail("Throughput and cache hits (Figures 8a to 8d)")
            .table(explain::table(&rows, "")),
        Section::detail("Time to first token (8e to 8h) and end to end (8i to 8l)")
            .table(rows.table("", &[TTFT, E2E].concat())),
    ];
    Document {
        about: vec![
            "Replicas: Llama-3.1-8B on one L4 each, in three regions 75 ms apart. Conversations: 3, 2 and 3 replicas in the US, Europe and \
             Asia; ChatBot Arena with 80 clients a region, WildChat with 40, 30 and 30. Trees: 4 replicas a region; 2 branches (15 requests a tree) \
             with 40, 20 and 20 clients; mixed: 2 clients with 4 branches (85 requests a tree) in the US, 20 clients with 2 branches in each other \
             region."
                .into(),
            "RR, LL, CH and SGL are one balancer in the US that pushes at once; GKE Gateway is round robin within each region; SkyLB and SkyLB-CH are \
             one balancer a region, with forwarding as published and pushing by pending requests. \"SkyLB, by cost\" and Isotherm (the default \
             policy) weigh the round trip against a warm cache when they forward. The conversations are synthetic, with the sharing that the paper \
             measured in the data sets (its Figure 5)."
                .into(),
        ],
        paper: paper(&rows),
        conclusions: conclusions(&rows),
        sections,
        rows,
        ..Document::default()
    }
}

fn cases(context: &Context) -> Vec<Case> {
    let effort = &context.effort;
    let workloads = [
        (ARENA, [3, 2, 3], arena(effort, &[80, 80, 80])),
        (WILDCHAT, [3, 2, 3], wildchat(effort, &[40, 30, 30])),
        (TREES, [4; 3], trees(effort, &[(2, 40), (2, 20), (2, 20)])),
        (MIXED, [4; 3], trees(effort, &[(4, 2), (2, 20), (2, 20)])),
    ];
    let cases = workloads.map(|(group, replicas, source)| {
        grid(group, &[0.0], &SYSTEMS, |_, system| {
            (setup(&replicas, arrangement(system)), source.clone())
        })
    });
    cases.concat()
}

fn arrangement(system: &str) -> Arrangement {
    let central = |policy| Arrangement::Central {
        config: config(policy, Push::Blind),
        region: US,
    };
    match system {
        "RR" => central(PolicyName::RoundRobin),
        "LL" => central(PolicyName::LeastOutstanding),
        "CH" => central(PolicyName::ConsistentHash),
        "SGL" => central(PolicyName::CacheAware),
        "SkyLB-CH" => Arrangement::Router(published(PolicyName::ConsistentHash)),
        "SkyLB" => Arrangement::Router(published(PolicyName::PrefixTree)),
        BY_COST => Arrangement::Router(config(PolicyName::PrefixTree, Push::Pending)),
        OURS => Arrangement::Router(config(PolicyName::Isotherm, Push::Pending)),
        _ => Arrangement::RegionLocal(config(PolicyName::RoundRobin, Push::Blind)),
    }
}

/// Replicas of the paper in its three regions.
pub(crate) fn setup(replicas: &[usize; 3], arrangement: Arrangement) -> Setup {
    let engine = Preset::Llama31_8bL4.config();
    let regions = ["us", "europe", "asia"]
        .into_iter()
        .zip(replicas)
        .map(|(name, &count)| RegionSetup::new(name, engine, count))
        .collect();
    Setup::regions(regions, arrangement)
}

fn paper(rows: &Rows) -> Vec<PaperComparison> {
    let over = |groups: &[&str], ours: &str, theirs: &[&str], figure: Figure| -> Vec<f64> {
        let panels = groups.iter().map(|group| rows.at(group, 0.0));
        let ratios = |panel: Panel<'_>| {
            let ratio = |their: &&str| panel.ratio(ours, their, figure);
            theirs.iter().map(ratio).collect::<Vec<_>>()
        };
        panels.flat_map(ratios).collect()
    };
    let throughputs = [
        (CHATS, "SkyLB", &SINGLE[..], Unit::Times, (1.12, 1.2)),
        (CHATS, "LL", &["SkyLB"], Unit::Share, (0.9738, 0.9738)),
        (CHATS, "SkyLB", &["GKE Gateway"], Unit::Times, (1.43, 1.62)),
        (ALL, "SkyLB", &["GKE Gateway"], Unit::Times, (1.43, 2.06)),
        (ALL, "SkyLB", &["SkyLB-CH"], Unit::Times, (1.0134, 1.0821)),
        (TOT, "CH", &["SkyLB"], Unit::Times, (1.02, 1.02)),
        (TOT, "CH", &["LL"], Unit::Times, (1.4, 1.4)),
    ];
    let throughputs = throughputs.map(|((scope, groups), ours, theirs, unit, range)| {
        let name = match theirs {
            [one] => one,
            _ => "single balancers",
        };
        let what = format!("{scope}: throughput of {ours} over {name}");
        SOURCE.compare(what, range, unit, &over(groups, ours, theirs, TOKENS))
    });
    let hits = [
        (CHATS, &["RR"][..], (0.1078, 0.1657)),
        (CHATS, &["LL"], (0.2829, 0.3113)),
        (CHATS, &["GKE Gateway"], (0.1808, 0.2430)),
        (CHATS, &["SkyLB"], (0.3696, 0.4655)),
        (FORESTS, &["LL", "RR"], (0.5866, 0.5932)),
        (FORESTS, &["SkyLB"], (0.8956, 0.9001)),
    ];
    let hits = hits.map(|((scope, groups), systems, range)| {
        let hits = |group: &&str| {
            let panel = rows.at(group, 0.0);
            let hits = systems.iter().map(|system| panel.mean(system, HITS));
            hits.collect::<Vec<_>>()
        };
        let what = format!("{scope}: cache hits of {}", systems.join(" and "));
        let found: Vec<f64> = groups.iter().flat_map(hits).collect();
        SOURCE.share(what, range, &found)
    });
    let times = [
        ("median TTFT", P50, (0.1587, 0.5763)),
        ("mean TTFT", MEAN, (0.1587, 0.5763)),
        ("p90 TTFT", P90, (0.1008, 0.2338)),
    ];
    let times = times.map(|(name, figure, range)| {
        let what = format!("all: {name} of SkyLB, of baselines'");
        SOURCE.share(what, range, &over(&GROUPS, "SkyLB", &BASELINES, figure))
    });
    let end_to_end = over(&GROUPS, "SkyLB", &BASELINES, E2E_P50);
    let end_to_end = SOURCE.times(
        "all: median end-to-end time of baselines over SkyLB's",
        (1.05, 2.14),
        &end_to_end
            .iter()
            .map(|share| 1.0 / share)
            .collect::<Vec<_>>(),
    );
    let all = throughputs.into_iter().chain(hits).chain(times);
    all.chain([end_to_end]).collect()
}

fn conclusions(rows: &Rows) -> Vec<Conclusion> {
    let conclusion = |group| {
        let panel = rows.at(group, 0.0);
        let best = panel.best(BASELINES, TOKENS).unwrap_or("LL");
        let beside = explain::beside(panel, "SkyLB", best);
        Conclusion::note(format!("The best baseline is {best}. {beside}"))
    };
    GROUPS.map(conclusion).into()
}
