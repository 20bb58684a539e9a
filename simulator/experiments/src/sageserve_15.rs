//! SageServe, Figure 15: the order of service between fast and normal interactive requests, on one instance.
//!
//! The paper orders inside the engine; selective pushing keeps the queue in the router, where the same orders apply. The paper states neither the
//! load nor the thresholds of DPA. With 25 % of the normal requests late at a third quartile of 5.6 s their objective is about that, not the
//! minute of its table: 1 s and 5.6 s here. The load is the one at which first come, first served has that quartile.

use core::time::Duration;
use std::sync::Arc;

use isotherm_policies::PolicyName;
use isotherm_report::number::{percent, short};
use isotherm_report::{Conclusion, Section, Table};
use isotherm_router::{
    InteractiveTier, Push, QueueLimits, QueueOrder, RouterConfig, Tier, TierRules,
};
use isotherm_simulator::scaling::calibrate::arrivals;
use isotherm_simulator::workload::rng::SeededRng;
use isotherm_simulator::workload::{RequestClass, Workload};
use isotherm_simulator::{Arrangement, Outcome, Setup};

use crate::context::{Case, Context, WorkloadSource, config, grid};
use crate::document::Document;
use crate::figures::Figure;
use crate::load::{quantile, ttft_s};
use crate::paper::{PaperComparison, Source};
use crate::rows::{Panel, Rows};
use crate::scaling::engines::{Engine, profiles};

const SEEDS: u64 = 5;
const SLOS: [Duration; 2] = [Duration::from_secs(1), Duration::from_millis(5_600)];
/// Third quartile under first come, first served, s.
const QUARTILE_S: f64 = 5.6;
/// Loads that are tried, of the capacity.
const LOADS: [f64; 7] = [0.90, 0.94, 0.97, 1.0, 1.02, 1.04, 1.06];
const LENGTH_S: [f64; 2] = [1_800.0, 400.0];
const ENGINE: Engine = Engine::Llama2H100;
const FCFS: &str = "FCFS";
const EDF: &str = "EDF";
const PF: &str = "PF";
const DPA: &str = "DPA";
const AUTO: &str = "auto (isotherm)";
const ORDERS: [&str; 5] = [FCFS, EDF, PF, DPA, AUTO];
/// Late fast and normal requests of the paper, and the third quartiles in s.
const PAPER: [(&str, [f64; 4]); 4] = [
    (FCFS, [0.45, 0.25, 5.6, 5.6]),
    (EDF, [0.31, 0.34, 2.4, 6.1]),
    (PF, [0.24, 0.60, 0.9, 12.1]),
    (DPA, [0.28, 0.38, 2.1, 7.9]),
];
/// Thresholds of DPA that are tried, s.
const EXPIRED_S: [f64; 4] = [1.0, 5.0, 30.0, 120.0];
const URGENT_S: [f64; 3] = [0.3, 1.0, 3.0];
/// Thresholds of the row DPA: the defaults.
const DEFAULT_DPA: (f64, f64) = (30.0, 1.0);

const LATE_FAST: Figure = Figure::less("late fast", "late_fast", percent);
const LATE_NORMAL: Figure = Figure::less("late normal", "late_normal", percent);
const P75_FAST: Figure = Figure::less("p75 TTFT fast, s", "ttft_p75_fast_s", short);
const P75_NORMAL: Figure = Figure::less("p75 TTFT normal, s", "ttft_p75_normal_s", short);
const P75_ALL: Figure = Figure::less("p75 TTFT, s", "ttft_p75_s", short);
const SOURCE: Source = Source("SageServe, section 7.2.6, text on Figure 15");
const GROUP: &str = "one instance";
const SWEEP: &str = "DPA";

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let profiles = profiles(context, &[ENGINE]);
    let capacity = profiles
        .first()
        .map_or(1.0, |profile| profile.capacity_per_s);
    let length_s = context.pick(LENGTH_S);
    let cases = |group: &str, loads: &[f64], system: &str, order: QueueOrder| {
        grid(group, loads, &[system], |load, _| {
            let rate_per_s = load * capacity;
            let source: WorkloadSource = Arc::new(move |seed| workload(rate_per_s, length_s, seed));
            (setup(order), source)
        })
    };
    let play = |cases: &[Case]| context.run_with(SEEDS, cases, &|_, _, outcome| tiers(outcome));
    let tried = play(&cases(GROUP, &LOADS, FCFS, QueueOrder::Fcfs));
    let distance = |load: &f64| {
        let quartile = tried.at(GROUP, *load).mean(FCFS, P75_ALL);
        (quartile / QUARTILE_S).ln().abs()
    };
    let load = LOADS
        .into_iter()
        .min_by(|a, b| distance(a).total_cmp(&distance(b)))
        .unwrap_or(1.0);
    let orders = ORDERS.map(|system| cases(GROUP, &[load], system, order(system)));
    let mut all = orders.concat();
    let is_quick = context.points(&LOADS).len() <= 2;
    for expired in EXPIRED_S {
        for urgent in URGENT_S.into_iter().filter(|_| !is_quick || expired > 1.0) {
            let system = format!("DPA, {expired} s and {urgent} s");
            all.extend(cases(SWEEP, &[load], &system, dpa((expired, urgent))));
        }
    }
    let rows = play(&all);
    let panel = rows.at(GROUP, load);
    Document {
        about: vec![format!(
            "One instance of Llama-2-70B on 8 H100, half of the requests fast (objective {} s), half normal ({} s), at {} of the capacity: the load at which first come, \
             first served has a third quartile nearest to the paper's {QUARTILE_S} s ({} s). DPA: {} s expired, {} s urgent.",
            SLOS[0].as_secs_f64(),
            SLOS[1].as_secs_f64(),
            percent(load),
            panel.shown(FCFS, P75_ALL),
            DEFAULT_DPA.0,
            DEFAULT_DPA.1
        )],
        paper: paper(panel),
        conclusions: conclusions(panel),
        sections: vec![
            Section::new("Orders, and thresholds of DPA: expired and urgent").table(table(&rows)),
        ],
        rows,
        ..Document::default()
    }
}

fn dpa((expired, urgent): (f64, f64)) -> QueueOrder {
    QueueOrder::Dpa {
        expired: Duration::from_secs_f64(expired),
        urgent: Duration::from_secs_f64(urgent),
    }
}

fn order(system: &str) -> QueueOrder {
    match system {
        EDF => QueueOrder::Edf,
        PF => QueueOrder::PriorityFirst,
        DPA => dpa(DEFAULT_DPA),
        AUTO => QueueOrder::Auto,
        _ => QueueOrder::Fcfs,
    }
}

fn setup(order: QueueOrder) -> Setup {
    // A plain policy serves the first of the line; the default policy chooses among the first ones.
    let policy = if order == QueueOrder::Auto {
        PolicyName::Isotherm
    } else {
        PolicyName::LeastOutstanding
    };
    let base = config(policy, Push::Pending);
    let wait_max = base.queue.wait_max;
    let tier = |ttft_slo, weight| InteractiveTier {
        ttft_slo,
        weight,
        wait_max,
    };
    let router = RouterConfig {
        queue: QueueLimits {
            order,
            ..base.queue
        },
        ttft_slo: SLOS[1],
        tiers: Some(TierRules {
            fast: tier(SLOS[0], 4.0),
            normal: tier(SLOS[1], 1.0),
            ..TierRules::new(SLOS[1], wait_max)
        }),
        ..base
    };
    Setup::one_region(ENGINE.config(), 1, Arrangement::Router(router))
}

/// Poisson arrivals, each fast or normal by lot.
fn workload(rate_per_s: f64, length_s: f64, seed: u64) -> Workload {
    let mut workload = arrivals(rate_per_s, length_s, seed);
    let mut rng = SeededRng::new(seed ^ 0x7137);
    for session in &mut workload.sessions {
        session.class = RequestClass {
            tier: if rng.chance(0.5) {
                Tier::InteractiveFast
            } else {
                Tier::InteractiveNormal
            },
            ..RequestClass::default()
        };
    }
    workload
}

fn tiers(outcome: &Outcome) -> Vec<(&'static str, f64)> {
    let times = |is_wanted: fn(Tier) -> bool| -> Vec<f64> {
        let requests = outcome.requests.iter();
        let requests = requests.filter(|one| is_wanted(one.tier));
        requests.map(ttft_s).collect()
    };
    let late = |times: &[f64], slo: Duration| {
        let late = times.iter().filter(|time| **time > slo.as_secs_f64());
        late.count() as f64 / times.len().max(1) as f64
    };
    let quartile = |times: &[f64]| quantile(times.iter().copied(), (3, 4));
    let fast = times(|tier| tier == Tier::InteractiveFast);
    let normal = times(|tier| tier == Tier::InteractiveNormal);
    vec![
        ("late_fast", late(&fast, SLOS[0])),
        ("late_normal", late(&normal, SLOS[1])),
        ("ttft_p75_fast_s", quartile(&fast)),
        ("ttft_p75_normal_s", quartile(&normal)),
        ("ttft_p75_s", quartile(&times(|_| true))),
    ]
}

/// The headline has the orders with their usual thresholds.
fn table(rows: &Rows) -> Table {
    let figures = [LATE_FAST, LATE_NORMAL, P75_FAST, P75_NORMAL];
    let columns = ["system"]
        .into_iter()
        .chain(figures.map(|figure| figure.name));
    rows.table("load", &figures)
        .headline(&columns.collect::<Vec<_>>(), |row| row.text(0) == GROUP)
}

fn paper(panel: Panel<'_>) -> Vec<PaperComparison> {
    let reason = "The load and the lengths of the paper's requests are not published; the order of the systems is what compares.";
    let of_system = |(system, [fast, normal, fast_s, normal_s]): (&str, [f64; 4])| {
        let share = |what: &str, value, figure| {
            let ours = [panel.mean(system, figure)];
            SOURCE.share(format!("{what}, {system}"), (value, value), &ours)
        };
        let over = |tier: &str, value_s: f64, figure| {
            let over = value_s / QUARTILE_S;
            let what = format!("p75 TTFT over FCFS, {tier}, {system}");
            SOURCE.times(what, (over, over), &[panel.ratio(system, FCFS, figure)])
        };
        [
            share("late fast requests", fast, LATE_FAST).because(reason),
            share("late normal requests", normal, LATE_NORMAL),
            over("fast", fast_s, P75_FAST),
            over("normal", normal_s, P75_NORMAL),
        ]
    };
    PAPER.map(of_system).concat()
}

fn conclusions(panel: Panel<'_>) -> Vec<Conclusion> {
    let ascending = |text: &str, systems: [&str; 4], figure: Figure| {
        let values = systems.map(|system| panel.mean(system, figure));
        Conclusion::claim(text, values.is_sorted()).measured(panel.list(&ORDERS, figure))
    };
    let late = |system: &str| [LATE_FAST, LATE_NORMAL].map(|figure| panel.mean(system, figure));
    let ours = late(AUTO);
    let dominates = |system: &&str| {
        let [fast, normal] = late(system);
        fast <= ours[0] && normal <= ours[1] && [fast, normal] != ours
    };
    let auto = Conclusion::claim(
        "No order has fewer late requests of both tiers than the default policy's",
        !ORDERS.iter().any(dominates),
    );
    vec![
        ascending(
            "Late fast requests: PF has the fewest, then DPA, EDF and FCFS",
            [PF, DPA, EDF, FCFS],
            LATE_FAST,
        ),
        ascending(
            "Late normal requests: FCFS has the fewest, then EDF, DPA and PF",
            [FCFS, EDF, DPA, PF],
            LATE_NORMAL,
        ),
        auto.measured(format!(
            "fast {}; normal {}",
            panel.list(&ORDERS, LATE_FAST),
            panel.list(&ORDERS, LATE_NORMAL)
        )),
    ]
}
