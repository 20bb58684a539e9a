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

use crate::charts::{Charts, e2e, ttft};
use crate::context::{Case, Context, WorkloadSource, config};
use crate::document::Document;
use crate::explain;
use crate::figures::{Figure, hits, p50, p90, tokens};
use crate::paper::{PaperComparison, PaperFigure, Unit};
use crate::rows::Rows;
use crate::workloads;
use isotherm_report::{Conclusion, Section};
use isotherm_simulator::{Arrangement, RegionSetup, Setup};

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
pub(crate) fn run(context: &Context) -> Document {
    let rows = context.run(SEEDS, &cases(context));
    let charts = Charts {
        rows: &rows,
        systems: &SYSTEMS,
    };
    let rate = "Prompt and output tokens per second of answered requests.";
    let throughput = |group| charts.bars((group, rate), &[group], tokens, short);
    let times = |group| {
        let (first, end) = (format!("{group}: TTFT"), format!("{group}: end to end"));
        [
            charts.boxes((&first, "Less is better."), &[group], Scale::Log, ttft),
            charts.boxes((&end, "Less is better."), &[group], Scale::Linear, e2e),
        ]
    };
    let caption = "Share of prompt tokens found in caches.";
    let cache = charts.bars(("All workloads", caption), &GROUPS, hits, percent);
    let sections = vec![
        Section::detail("Throughput (Figures 8a to 8d)").charts(GROUPS.map(throughput).into()),
        Section::detail("Time to first token (8e to 8h) and end to end (8i to 8l)")
            .text("Box: 25th to 75th percentile, line: median, whiskers: 10th and 90th, triangle: mean. The axis of TTFT is logarithmic.")
            .charts(GROUPS.into_iter().flat_map(times).collect()),
        Section::detail("Cache hits")
            .charts(vec![cache])
            .table(explain::table(&rows, explain::group_and_system)),
    ];
    Document {
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
        conclusions: conclusions(&rows),
        sections,
        rows,
        ..Document::default()
    }
}

fn cases(context: &Context) -> Vec<Case> {
    let workloads: [(&str, [usize; 3], WorkloadSource); 4] = [
        (
            ARENA,
            [3, 2, 3],
            workloads::arena(context.effort(), &[80, 80, 80]),
        ),
        (
            WILDCHAT,
            [3, 2, 3],
            workloads::wildchat(context.effort(), &[40, 30, 30]),
        ),
        (
            TREES,
            [4, 4, 4],
            workloads::trees(context.effort(), &[(2, 40), (2, 20), (2, 20)]),
        ),
        (
            MIXED,
            [4, 4, 4],
            workloads::trees(context.effort(), &[(4, 2), (2, 20), (2, 20)]),
        ),
    ];
    let mut cases = Vec::new();
    for (group, replicas, source) in workloads {
        for system in SYSTEMS {
            let setup = setup(&replicas, arrangement(system));
            cases.push(Case::new(group, system, 0.0, setup, &source));
        }
    }
    cases
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
        "SkyLB-CH" => Arrangement::Router(config(PolicyName::ConsistentHash, Push::Pending)),
        "SkyLB" => Arrangement::Router(config(PolicyName::PrefixTree, Push::Pending)),
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
    let over = |groups: &[&str], ours: &str, theirs: &[&str], figure: Figure| {
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
    let range = |low, high| PaperFigure::range(low, high, Unit::Times, SOURCE);
    let share = |low, high| PaperFigure::range(low, high, Unit::Share, SOURCE);
    let baselines = ["GKE Gateway", "RR", "LL", "CH", "SGL"];
    vec![
        PaperComparison::over(
            "conversations: throughput of SkyLB over single balancers",
            range(1.12, 1.2),
            &over(&chats, "SkyLB", &SINGLE, tokens),
        ),
        PaperComparison::over(
            "conversations: throughput of LL over SkyLB",
            PaperFigure::share(0.9738, SOURCE),
            &over(&chats, "LL", &["SkyLB"], tokens),
        ),
        PaperComparison::over(
            "conversations: throughput of SkyLB over GKE Gateway",
            range(1.43, 1.62),
            &over(&chats, "SkyLB", &["GKE Gateway"], tokens),
        ),
        PaperComparison::over(
            "all: throughput of SkyLB over GKE Gateway",
            range(1.43, 2.06),
            &over(&GROUPS, "SkyLB", &["GKE Gateway"], tokens),
        ),
        PaperComparison::over(
            "all: throughput of SkyLB over SkyLB-CH",
            range(1.0134, 1.0821),
            &over(&GROUPS, "SkyLB", &["SkyLB-CH"], tokens),
        ),
        PaperComparison::over(
            "ToT: throughput of CH over SkyLB",
            PaperFigure::times(1.02, SOURCE),
            &over(&[TREES], "CH", &["SkyLB"], tokens),
        ),
        PaperComparison::over(
            "ToT: throughput of CH over LL",
            PaperFigure::times(1.4, SOURCE),
            &over(&[TREES], "CH", &["LL"], tokens),
        ),
        PaperComparison::over(
            "conversations: cache hits of RR",
            share(0.1078, 0.1657),
            &found(&chats, "RR"),
        ),
        PaperComparison::over(
            "conversations: cache hits of LL",
            share(0.2829, 0.3113),
            &found(&chats, "LL"),
        ),
        PaperComparison::over(
            "conversations: cache hits of GKE Gateway",
            share(0.1808, 0.2430),
            &found(&chats, "GKE Gateway"),
        ),
        PaperComparison::over(
            "conversations: cache hits of SkyLB",
            share(0.3696, 0.4655),
            &found(&chats, "SkyLB"),
        ),
        PaperComparison::over(
            "trees: cache hits of LL and RR",
            share(0.5866, 0.5932),
            &[found(&trees, "LL"), found(&trees, "RR")].concat(),
        ),
        PaperComparison::over(
            "trees: cache hits of SkyLB",
            share(0.8956, 0.9001),
            &found(&trees, "SkyLB"),
        ),
        PaperComparison::over(
            "all: median TTFT of SkyLB, of baselines'",
            share(0.1587, 0.5763),
            &over(&GROUPS, "SkyLB", &baselines, p50),
        ),
        PaperComparison::over(
            "all: mean TTFT of SkyLB, of baselines'",
            share(0.1587, 0.5763),
            &over(&GROUPS, "SkyLB", &baselines, |row| row.summary.ttft_mean_s),
        ),
        PaperComparison::over(
            "all: p90 TTFT of SkyLB, of baselines'",
            share(0.1008, 0.2338),
            &over(&GROUPS, "SkyLB", &baselines, p90),
        ),
        PaperComparison::over(
            "all: median end-to-end time of baselines over SkyLB's",
            range(1.05, 2.14),
            &over(&GROUPS, "SkyLB", &baselines, |row| row.summary.e2e_p50_s)
                .iter()
                .map(|share| 1.0 / share)
                .collect::<Vec<_>>(),
        ),
    ]
}

fn conclusions(rows: &Rows) -> Vec<Conclusion> {
    let mut conclusions = Vec::new();
    for group in GROUPS {
        let others = SYSTEMS
            .into_iter()
            .filter(|system| !system.starts_with("SkyLB"));
        let best = Rows::best(others, |system| rows.mean(group, system, 0.0, tokens));
        let best = best.unwrap_or("LL");
        conclusions.push(Conclusion::note(format!(
            "The best baseline is {best}. {}",
            explain::beside(rows, group, 0.0, ("SkyLB", best))
        )));
    }
    conclusions
}
