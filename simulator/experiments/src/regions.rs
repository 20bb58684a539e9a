//! Forwarding between regions beside one central balancer, over the number of regions and the way between them.
//!
//! The central balancer stands in the first region and sees every replica; clients and replicas of other regions pay the way to it.
//! *Skewed*: closed loops of WildChat, in the first region three times as many clients as in each other one, as in SkyLB's section
//! 5.2. *Week*: conversations that begin along the week of Office 365 (model C), in each region at another time of the day. Four
//! replicas a region; in the week, forwarding and the central balancer have three, and region-local serving both numbers.

use core::time::Duration;
use std::sync::Arc;

use isotherm_engine::model::presets::Preset;
use isotherm_policies::PolicyName;
use isotherm_report::number::{percent, short, times};
use isotherm_report::{Conclusion, Row, Section, Table};
use isotherm_router::Push;
use isotherm_simulator::workload::diurnal;
use isotherm_simulator::{Arrangement, Network, RegionSetup, Setup};

use crate::context::{Case, Context, WorkloadSource, config, grid, published};
use crate::document::Document;
use crate::figures::{FORWARDED, Figure, HITS, P50, P90, TOKENS};
use crate::load::{quantile, ttft_s};
use crate::rows::{Panel, Rows};
use crate::scaling::scenario;
use crate::workloads;

const SEEDS: u64 = 5;
const REGIONS: [usize; 3] = [3, 5, 10];
/// Round trips between two regions, in ms.
const ROUND_TRIPS_MS: [f64; 5] = [0.0, 20.0, 75.0, 150.0, 300.0];
/// Clients of the first region and of each other one, and replicas of a region (SkyLB 5.2).
const CLIENTS: (usize, usize) = (120, 40);
const REPLICAS: usize = 4;
/// Requests that a replica runs at once, within the 20 to 50 that SkyLB saw fit.
const SEQUENCES_MAX: u32 = 20;
/// Replicas of a region where regions share them in the week.
const SHARED: usize = 3;
/// Length of the week, and conversations that begin each second in a region on its average.
const WEEK_S: [f64; 2] = [1_680.0, 560.0];
const MEAN_PER_S: f64 = 0.3;
/// Parts of the week with a rate of their own: hours.
const WEEK_HOURS: usize = 168;

const OURS: &str = "Isotherm";
const CENTRAL: &str = "central Isotherm";
const SKYLB: &str = "SkyLB";
const LOCAL: &str = "region-local";
/// Region-local serving with the replicas of [`REPLICAS`] in the week.
const MORE: &str = "region-local, 4 each";
const SYSTEMS: [&str; 5] = [OURS, CENTRAL, SKYLB, LOCAL, MORE];
/// The median time to the first token of clients outside the first region.
const FAR_P50: Figure = Figure::less("p50 TTFT beyond the first region, s", "far_p50_s", short);

/// Least throughput and highest percentiles beside the central balancer.
const TOKENS_MIN: f64 = 0.97;
const P90_MAX: f64 = 1.25;
const FAR_MAX: f64 = 0.6;
/// Greatest difference without a way between regions.
const SAME_MAX: f64 = 0.02;

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let traces = scenario::traces(context);
    let points = &traces.o365_c.points;
    let hour = points.len().div_ceil(WEEK_HOURS).max(1);
    let hours = points.chunks(hour).map(|hour| {
        let rates = hour.iter().map(|point| point.interactive_per_s);
        rates.sum::<f64>() / hour.len() as f64
    });
    let hours: Vec<f64> = hours.collect();
    let mean = hours.iter().sum::<f64>() / hours.len() as f64;
    let rates: Arc<[f64]> = hours.iter().map(|rate| rate / mean * MEAN_PER_S).collect();
    let week_s = context.pick(WEEK_S);
    let round_trips = context.points(&ROUND_TRIPS_MS);
    let mut cases: Vec<Case> = Vec::new();
    for regions in context.points(&REGIONS) {
        let rates = Arc::clone(&rates);
        let week: WorkloadSource =
            Arc::new(move |seed| diurnal::week(&rates, regions, week_s, seed));
        let clients: Vec<usize> = (0..regions)
            .map(|region| if region == 0 { CLIENTS.0 } else { CLIENTS.1 })
            .collect();
        let skewed = workloads::wildchat(&context.effort, &clients);
        cases.extend(grid(
            &group(regions, "skewed"),
            &round_trips,
            &[OURS, CENTRAL, SKYLB, LOCAL],
            |round_trip, system| (setup(regions, REPLICAS, round_trip, system), skewed.clone()),
        ));
        cases.extend(grid(
            &group(regions, "week"),
            &round_trips,
            &SYSTEMS,
            |round_trip, system| {
                let replicas = if system == MORE { REPLICAS } else { SHARED };
                (setup(regions, replicas, round_trip, system), week.clone())
            },
        ));
    }
    let rows = context.run_with(SEEDS, &cases, &|_, _, outcome| {
        let far = outcome.requests.iter();
        let far = far.filter(|one| one.region > 0 && !one.warmup);
        vec![("far_p50_s", quantile(far.map(ttft_s), (1, 2)))]
    });
    let cells = rows.cells();
    let mut panels: Vec<Panel<'_>> = Vec::new();
    for cell in cells.iter().filter(|cell| cell.system == OURS) {
        panels.push(rows.at(&cell.group, cell.x));
    }
    Document {
        about: vec![
            format!(
                "Replicas: Llama-3.1-8B on one L4 each. Skewed: {} clients in the first region and {} in each other one hold conversations with WildChat's sharing, on {REPLICAS} \
                 replicas a region. Week: conversations begin along a week, each region's day at its own time, on {SHARED} replicas a region. {CENTRAL}: one balancer in the first \
                 region with the default policy. {SKYLB}: forwarding and policy as published.",
                CLIENTS.0, CLIENTS.1
            ),
            scenario::about(&traces),
        ],
        conclusions: conclusions(&panels),
        sections: vec![
            Section::new("Beside the central balancer")
                .text("a page shows a round trip of 75 ms.")
                .table(table(&rows)),
        ],
        rows,
        ..Document::default()
    }
}

fn group(regions: usize, workload: &str) -> String {
    format!("{regions} regions, {workload}")
}

fn setup(regions: usize, replicas: usize, round_trip_ms: f64, system: &str) -> Setup {
    let ours = config(PolicyName::Isotherm, Push::Pending);
    let arrangement = match system {
        CENTRAL => Arrangement::Central {
            config: ours,
            region: 0,
        },
        SKYLB => Arrangement::Router(published(PolicyName::PrefixTree)),
        LOCAL | MORE => Arrangement::RegionLocal(ours),
        _ => Arrangement::Router(ours),
    };
    let mut engine = Preset::Llama31_8bL4.config();
    engine.sequences_max = SEQUENCES_MAX;
    let regions =
        (0..regions).map(|region| RegionSetup::new(&format!("region-{region}"), engine, replicas));
    let one_way = Duration::from_secs_f64(round_trip_ms / 2_000.0);
    Setup {
        network: Network {
            between_regions: one_way,
            ..Network::default()
        },
        ..Setup::regions(regions.collect(), arrangement)
    }
}

/// Reasons for which a cell falls short of the central balancer.
fn shortfalls(panel: Panel<'_>) -> Vec<String> {
    let tokens = panel.ratio(OURS, CENTRAL, TOKENS);
    let p90 = panel.ratio(OURS, CENTRAL, P90);
    let far = panel.ratio(OURS, CENTRAL, FAR_P50);
    if panel.x == 0.0 {
        let differs = (tokens - 1.0).abs();
        let holds = differs <= SAME_MAX;
        let text = || format!("throughput differs by {}", percent(differs));
        return (!holds).then(text).into_iter().collect();
    }
    let figures = [
        ("throughput", tokens, tokens >= TOKENS_MIN),
        ("p90", p90, p90 <= P90_MAX),
        ("p50 beyond the first region", far, far <= FAR_MAX),
    ];
    let short = figures.into_iter().filter(|(.., holds)| !holds);
    let short =
        short.map(|(name, ratio, _)| format!("{name} {} of the central balancer's", times(ratio)));
    short.collect()
}

fn conclusions(panels: &[Panel<'_>]) -> Vec<Conclusion> {
    let claim = |panel: &Panel<'_>| {
        let shortfalls = shortfalls(*panel);
        let claim = if panel.x == 0.0 {
            "without a way between regions, the throughput of forwarding and of the central balancer is within 2 %"
                .to_owned()
        } else {
            format!(
                "forwarding has at least {TOKENS_MIN} of the central balancer's throughput, at most {P90_MAX} of its p90, and at most {FAR_MAX} of its p50 beyond the first region"
            )
        };
        let case = format!("{}, {} ms", panel.group, panel.x);
        let conclusion = Conclusion::claim(claim, shortfalls.is_empty()).in_case(case);
        if shortfalls.is_empty() {
            conclusion
        } else {
            conclusion.measured(shortfalls.join("; "))
        }
    };
    panels.iter().map(claim).collect()
}

/// The headline has the systems with a round trip of 75 ms, the way between two coasts.
fn table(rows: &Rows) -> Table {
    let figures = [TOKENS, P50, P90, FAR_P50, HITS, FORWARDED];
    let (group, system, round_trip) = ("group", "system", "round trip, ms");
    let [tokens, p90] = [TOKENS, P90].map(|figure| figure.column());
    let columns = [group, system, &tokens, &p90, FAR_P50.name];
    let is_shown = |row: &Row| row.text(1) == "75" && [OURS, CENTRAL].contains(&row.text(2));
    rows.table(round_trip, &figures)
        .headline(&columns, is_shown)
}
