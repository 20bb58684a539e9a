//! Tenants: the skew of a real service, and one tenant who sends ten times its share, or prompts many times as long.
//!
//! Shares are those of ServeGen's large model: 24 tenants, the largest with 16 %, and 18 % of all others, here sixteen more. Each tenant's requests
//! begin with its own instructions, so locality is worth something. The burst fills the middle third of the run. At half of what the pool
//! can serve, an equal share is enough for each of the others; close to what it can serve, it is not. *Alone*: the same run without the
//! burst. An order of service reaches only what waits in the router; the bound on a tenant's share keeps engines from being full.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use isotherm_engine::model::Preset;
use isotherm_policies::PolicyName;
use isotherm_report::number::{percent, short, times};
use isotherm_report::{Conclusion, Row, Section, Table};
use isotherm_router::{Push, QueueOrder, TenantLimits};
use isotherm_simulator::prompt::{Piece, Prompt};
use isotherm_simulator::workload::rng::{LogNormal, SeededRng};
use isotherm_simulator::workload::{RequestClass, Session, Workload};
use isotherm_simulator::{Arrangement, Outcome, RequestRecord, Setup};

use crate::context::{Context, WorkloadSource, config, grid};
use crate::document::Document;
use crate::figures::{Figure, HITS};
use crate::load::{quantile, ttft_s};
use crate::rows::Rows;

const SEEDS: u64 = 3;
const REPLICAS: usize = 8;
const LENGTH_S: [f64; 2] = [900.0, 240.0];
/// Shares of ServeGen's 24 largest clients of its large model.
const SHARES: [f64; 24] = [
    0.160, 0.072, 0.066, 0.066, 0.063, 0.054, 0.054, 0.044, 0.026, 0.026, 0.023, 0.022, 0.020,
    0.014, 0.014, 0.012, 0.012, 0.012, 0.011, 0.010, 0.010, 0.009, 0.009, 0.008,
];
/// Tenants that share the rest.
const OTHERS: u64 = 16;
/// Requests a second without a burst, over all replicas: half of what they can serve, and close to it.
const HALF_PER_S: f64 = 6.0;
const CLOSE_PER_S: f64 = 10.0;
/// A load, the tenant whose requests burst, and how.
#[derive(Clone, Copy)]
struct Burst {
    name: &'static str,
    rate_per_s: f64,
    tenant: u64,
    /// The tenant's requests in the burst, over those without it.
    requests: f64,
    /// Length of its prompts in the burst, over that without it.
    length: f64,
}
const BURSTS: [Burst; 3] = [
    Burst {
        name: "Half of the capacity, the largest tenant bursts",
        rate_per_s: HALF_PER_S,
        tenant: 1,
        requests: 10.0,
        length: 1.0,
    },
    Burst {
        name: "Close to the capacity, the second largest tenant bursts",
        rate_per_s: CLOSE_PER_S,
        tenant: 2,
        requests: 10.0,
        length: 1.0,
    },
    Burst {
        name: "Half of the capacity, the largest tenant sends long prompts",
        rate_per_s: HALF_PER_S,
        tenant: 1,
        requests: 1.0,
        length: 20.0,
    },
];
/// Length of the instructions that begin each of a tenant's requests.
const INSTRUCTIONS: (f64, f64) = (700.0, 2_500.0);
/// Median length and deviation of the rest of a prompt.
const PROMPT: (f64, f64) = (300.0, 0.8);
const ANSWER: LogNormal = LogNormal::new(120.0, 0.6);
/// Bounds of lengths, and of long prompts.
const TOKENS: (u32, u32) = (8, 6_000);
const LONG_TOKENS: (u32, u32) = (8, 24_000);
const ALONE: &str = "alone";
const UNFAIR: &str = "unfair";
const FCFS: &str = "FCFS";
const BY_REQUESTS: &str = "bounded by requests";
const BY_BOTH: &str = "bounded by requests and tokens";
const SYSTEMS: [&str; 5] = [ALONE, UNFAIR, FCFS, BY_REQUESTS, BY_BOTH];
/// Largest share of a tenant where it is bounded: a little more than that of the largest tenant.
const SHARE_MAX: f64 = 0.18;
const OTHERS_P90: Figure = Figure::less("p90 TTFT of the others, s", "others_p90_s", short);
const OTHERS_QUEUED: Figure = Figure::less(
    "p90 of the others' wait in the router, s",
    "others_queued_p90_s",
    short,
);
const WORST_P90: Figure = Figure::less("worst tenant's p90 TTFT, s", "worst_p90_s", short);
const BURSTING_P90: Figure = Figure::less(
    "p90 TTFT of the bursting tenant, s",
    "bursting_p90_s",
    short,
);
const OTHERS_REFUSED: Figure = Figure::less("refused of the others", "others_refused", percent);
const BURSTING_REFUSED: Figure = Figure::less(
    "refused of the bursting tenant",
    "bursting_refused",
    percent,
);

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let length_s = context.pick(LENGTH_S);
    let cases = BURSTS.map(|burst| {
        grid(burst.name, &[0.0], &SYSTEMS, |_, system| {
            let played = if system == ALONE {
                Burst {
                    requests: 1.0,
                    length: 1.0,
                    ..burst
                }
            } else {
                burst
            };
            let source: WorkloadSource = Arc::new(move |seed| workload(played, length_s, seed));
            (setup(system), source)
        })
    });
    let rows = context.run_with(SEEDS, &cases.concat(), &|case, _, outcome| {
        let burst = BURSTS.iter().find(|burst| burst.name == case.group);
        figures(outcome, burst.map_or(0, |burst| burst.tenant)).into()
    });
    Document {
        about: vec![format!(
            "{REPLICAS} replicas of Llama-3.1-8B on one L4 each, {HALF_PER_S} requests a second or, close to the capacity, {CLOSE_PER_S}, of {} tenants with the skew of ServeGen's large model (largest {}). For the middle third, a tenant sends ten \
                 times as much, or prompts twenty times as long. {ALONE}: without that. {UNFAIR}: the default policy without a bound. {FCFS}: first come, first served. {BY_REQUESTS}: no tenant may \
                 have more than {} of the requests while half of the memory is in use. {BY_BOTH}: nor of their tokens; all tenants have the same weight.",
            SHARES.len() as u64 + OTHERS,
            percent(SHARES[0]),
            percent(SHARE_MAX)
        )],
        conclusions: BURSTS
            .iter()
            .flat_map(|burst| conclusions(&rows, burst.name))
            .collect(),
        sections: vec![Section::new("Bursts").table(table(&rows))],
        rows,
        ..Document::default()
    }
}

fn conclusions(rows: &Rows, group: &str) -> Vec<Conclusion> {
    let panel = rows.at(group, 0.0);
    let of_system = |system: &str| {
        let slower = panel.ratio(system, ALONE, OTHERS_P90);
        let hits = panel.ratio(system, UNFAIR, HITS);
        let case = format!("{group}, {system}");
        let p90 = "the others' p90 is at most 1.2 of that without the burst";
        let cached = "cache hits are at least 0.95 of those without a bound";
        [(p90, slower <= 1.2, slower), (cached, hits >= 0.95, hits)].map(|(text, holds, ratio)| {
            let claim = Conclusion::claim(text, holds).in_case(&case);
            claim.measured(times(ratio))
        })
    };
    [BY_REQUESTS, BY_BOTH]
        .into_iter()
        .flat_map(of_system)
        .collect()
}

fn table(rows: &Rows) -> Table {
    let figures = [
        OTHERS_P90,
        OTHERS_QUEUED,
        WORST_P90,
        BURSTING_P90,
        OTHERS_REFUSED,
        BURSTING_REFUSED,
        HITS,
    ];
    let shown = [OTHERS_P90, OTHERS_REFUSED, BURSTING_REFUSED, HITS].map(|figure| figure.name);
    let columns = ["group", "system"].into_iter().chain(shown);
    let is_shown = |row: &Row| [UNFAIR, BY_BOTH].contains(&row.text(1));
    rows.table("", &figures)
        .headline(&columns.collect::<Vec<_>>(), is_shown)
}

fn setup(system: &str) -> Setup {
    let mut router = config(PolicyName::Isotherm, Push::Pending);
    if system == FCFS {
        router.queue.order = QueueOrder::Fcfs;
    }
    router.tenants = [BY_REQUESTS, BY_BOTH]
        .contains(&system)
        .then_some(TenantLimits {
            in_flight_max: None,
            share_max: Some(SHARE_MAX),
            token_share_max: (system == BY_BOTH).then_some(SHARE_MAX),
            weights: BTreeMap::new(),
            tracked_max: TenantLimits::TRACKED_MAX,
        });
    let engine = Preset::Llama31_8bL4.config();
    Setup::one_region(engine, REPLICAS, Arrangement::Router(router))
}

fn shares() -> Vec<f64> {
    let rest = (1.0 - SHARES.iter().sum::<f64>()) / OTHERS as f64;
    SHARES
        .into_iter()
        .chain(core::iter::repeat_n(rest, OTHERS as usize))
        .collect()
}

/// Each tenant has its own stream of random values: a burst of one changes nothing of the others.
fn workload(burst: Burst, length_s: f64, seed: u64) -> Workload {
    let mut sessions = Vec::new();
    for (tenant, share) in (1..).zip(shares()) {
        let mut rng = SeededRng::new(seed.wrapping_mul(1_009).wrapping_add(tenant));
        let (low, high) = INSTRUCTIONS;
        let own = |id: u64| id * 1_024 + tenant;
        let instructions = Piece::new(own(0), (low + (high - low) * rng.unit()) as u32);
        let mut at = 0.0;
        loop {
            let is_burst = (length_s / 3.0..length_s * 2.0 / 3.0).contains(&at);
            let (times, longer) = if tenant == burst.tenant && is_burst {
                (burst.requests, burst.length)
            } else {
                (1.0, 1.0)
            };
            at += rng.exponential(1.0 / (burst.rate_per_s * share * times));
            if at >= length_s {
                break;
            }
            let mut text = |lengths: LogNormal, bounds| {
                let mut piece = lengths.text(&mut rng, bounds);
                piece.id = own(piece.id);
                piece
            };
            let bounds = if longer > 1.0 { LONG_TOKENS } else { TOKENS };
            let rest = text(LogNormal::new(PROMPT.0 * longer, PROMPT.1), bounds);
            let answer = text(ANSWER, TOKENS);
            let prompt = Prompt::new([instructions, rest]);
            let class = RequestClass {
                tenant,
                ..RequestClass::default()
            };
            let start = Duration::from_secs_f64(at);
            sessions.push(Session::one(rng.key(), start, prompt, answer).with_class(class));
        }
    }
    sessions.sort_by_key(|session| session.starts);
    Workload {
        name: burst.name.to_owned(),
        sessions,
        ..Workload::default()
    }
}

fn figures(outcome: &Outcome, bursting: u64) -> [(&'static str, f64); 6] {
    let queued = |one: &RequestRecord| one.queued.as_secs_f64();
    let of = |is_wanted: &dyn Fn(u64) -> bool| -> Vec<&RequestRecord> {
        let requests = outcome.requests.iter();
        requests.filter(|one| is_wanted(one.tenant)).collect()
    };
    let p90 = |requests: &[&RequestRecord], of: fn(&RequestRecord) -> f64| {
        quantile(requests.iter().map(|one| of(one)), (9, 10))
    };
    let refused = |requests: &[&RequestRecord]| {
        let refused = requests.iter().filter(|one| one.refused.is_some());
        refused.count() as f64 / requests.len() as f64
    };
    let others = of(&|tenant| tenant != bursting);
    let bursting_own = of(&|tenant| tenant == bursting);
    let tenants = (1..).zip(shares()).map(|(tenant, _)| tenant);
    let worst = tenants
        .filter(|tenant| *tenant != bursting)
        .map(|tenant| p90(&of(&|other| other == tenant), ttft_s));
    [
        ("others_p90_s", p90(&others, ttft_s)),
        ("others_queued_p90_s", p90(&others, queued)),
        ("worst_p90_s", worst.fold(f64::NAN, f64::max)),
        ("bursting_p90_s", p90(&bursting_own, ttft_s)),
        ("others_refused", refused(&others)),
        ("bursting_refused", refused(&bursting_own)),
    ]
}
