//! The aggregated model of weeks beside requests through the routing core and the engine model.
//!
//! The same traffic, start-up times and strategies in both: one region, six tenths of the rate of model C, hours around the rise of a day.
//! The differences are the error of every figure of the aggregated model.

use isotherm_report::number::{percent, short, times};
use isotherm_report::{Conclusion, Section, Table};
use isotherm_simulator::scaling::cluster::Cluster;
use isotherm_simulator::scaling::latencies::Latencies;
use isotherm_simulator::scaling::ledger::Ledger;
use isotherm_simulator::scaling::profile::Profile;
use isotherm_simulator::scaling::requests::RequestOutcome;
use isotherm_simulator::scaling::scaler::STEP_S;
use isotherm_simulator::scaling::traffic::Point;

use crate::context::Context;
use crate::document::Document;
use crate::figures::Row;
use crate::load::ttft_s;
use crate::rows::Rows;
use crate::scaling::engines::{Engine, profiles};
use crate::scaling::figures::{HOURS, P75, P95, USED};
use crate::scaling::scenario::{self, DAY_S, Trial, cluster, deployment};
use crate::scaling::strategies::{LT_I, LT_U, Mode, OURS, REACTIVE, scaler};

const SEEDS: u64 = 1;
/// Hours of Tuesday that are played: the rise from the night to the peak.
const FROM_S: f64 = DAY_S + 11.0 * 3_600.0;
const HOURS_PLAYED: [f64; 2] = [8.0, 1.5];
/// Part of the traffic of all regions.
const SHARE: f64 = 0.6;
const START: usize = 8;
const BOUNDS: (usize, usize) = (2, 12);
const SYSTEMS: [&str; 4] = [REACTIVE, LT_I, LT_U, OURS];
const REQUESTS: &str = "requests";
const AGGREGATED: &str = "aggregated";
/// Bounds on the difference of hours, and of the mean utilisation.
const HOURS_SAME: f64 = 0.10;
const USED_SAME: f64 = 0.05;
/// Bound on the factor between the p95 of the two.
const P95_FACTOR: f64 = 2.0;

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let traces = scenario::traces(context);
    let engine = Engine::Llama2H100;
    let profiles = profiles(context, &[engine]);
    let Some(profile) = profiles.first() else {
        return Document::default();
    };
    let length_s = context.pick(HOURS_PLAYED) * 3_600.0;
    let traffic = traces
        .o365_c
        .between(FROM_S, FROM_S + length_s)
        .scaled(SHARE);
    // Requests are played without batch work, so the aggregated model is as well.
    let traffic = traffic.mapped(Point::without_batch);
    let mut deployment = deployment("Llama2-70B", profile, vec![traffic]);
    (deployment.start, deployment.bounds) = (START, BOUNDS);
    let cluster = cluster(vec![deployment], 0.0);
    let mut trials = Vec::new();
    for seed in context.seeds(SEEDS) {
        for strategy in SYSTEMS {
            for group in [REQUESTS, AGGREGATED] {
                let run = (Mode::Honest, seed);
                trials.push(Trial::new(group, strategy, run, cluster.clone()));
            }
        }
    }
    let rows = Rows(context.map(&trials, |trial| {
        if trial.group == AGGREGATED {
            trial.play().row
        } else {
            by_requests(trial, engine)
        }
    }));
    Document {
        about: vec![
            format!(
                "Model C's traffic from 11 h UTC of a Tuesday, {} h of it at 0.6 of the rate, Llama-2-70B on 8 H100, {START} instances at the start and {} to {} later. \
                 The instances of both have the same start-up times and the same strategies.",
                length_s / 3_600.0,
                BOUNDS.0,
                BOUNDS.1
            ),
            scenario::about(&traces),
            format!(
                "Aggregated: steps of {STEP_S} s, tables of the engine under load, measured at {} levels; an instance that always has work answers {} requests a second.",
                profile.levels.len(),
                short(profile.capacity_per_s)
            ),
        ],
        conclusions: conclusions(&rows),
        sections: vec![
            Section::new("Both").table(comparison(&rows)),
            Section::detail("The engine under load").table(levels(profile)),
        ],
        rows,
        ..Document::default()
    }
}

/// Plays a trial request by request.
fn by_requests(trial: &Trial, engine: Engine) -> Row {
    let cluster = Cluster {
        times: trial.mode.times(trial.strategy),
        seed: trial.seed,
        ..trial.cluster.clone()
    };
    let mut scaler = scaler(trial.strategy, trial.mode, &cluster);
    let outcomes = cluster.run_requests(&[engine.config()], scaler.as_mut());
    let (mut ttft, mut e2e) = (Latencies::default(), Latencies::default());
    for request in outcomes.iter().flat_map(|one| &one.outcome.requests) {
        // What the end of the run cut off says nothing.
        if request.ttft().is_some() || request.sent.as_secs_f64() < cluster.length_s - 60.0 {
            ttft.add(ttft_s(request), 1.0);
        }
        if let Some(time) = request.e2e() {
            e2e.add(time.as_secs_f64(), 1.0);
        }
    }
    let sum = |of: fn(&Ledger) -> f64| -> f64 {
        let ledgers = outcomes.iter().flat_map(|one| &one.ledgers);
        ledgers.map(of).sum()
    };
    let mean = |one: &RequestOutcome| {
        one.utilisation.iter().sum::<f64>() / one.utilisation.len().max(1) as f64
    };
    let used = outcomes.iter().map(mean).sum::<f64>() / outcomes.len().max(1) as f64;
    Row {
        group: trial.group.clone(),
        system: trial.system.clone(),
        x: 0.0,
        seed: trial.seed,
        summary: None,
        more: [
            ("instance_hours", sum(Ledger::hours)),
            ("hours_starting", sum(Ledger::wasted_hours)),
            ("starts", sum(|ledger| ledger.starts as f64)),
            ("reversals", sum(|ledger| ledger.reversals as f64)),
            ("ttft_p50_s", ttft.quantile(0.5)),
            ("ttft_p75_s", ttft.quantile(0.75)),
            ("ttft_p95_s", ttft.quantile(0.95)),
            ("e2e_p75_s", e2e.quantile(0.75)),
            ("e2e_p95_s", e2e.quantile(0.95)),
            ("requests", ttft.count()),
            ("utilisation", used),
        ]
        .into(),
    }
}

fn conclusions(rows: &Rows) -> Vec<Conclusion> {
    let of = |group: &'static str| rows.at(group, 0.0);
    let over = |system: &str, figure| {
        of(AGGREGATED).mean(system, figure) / of(REQUESTS).mean(system, figure)
    };
    let claim = |text: &str,
                 holds: fn(f64) -> bool,
                 format: fn(f64) -> String,
                 value: &dyn Fn(&str) -> f64| {
        let values = SYSTEMS.map(|system| (system, value(system)));
        let shown = values.map(|(system, value)| format!("{system} {}", format(value)));
        let claim = Conclusion::claim(text, values.iter().all(|(_, value)| holds(*value)));
        claim.measured(shown.join(", "))
    };
    vec![
        claim(
            "The instance hours of the aggregated model are within 10 % of those of requests",
            |ratio| (ratio - 1.0).abs() <= HOURS_SAME,
            times,
            &|system| over(system, HOURS),
        ),
        claim(
            "Its mean memory utilisation is within 5 points",
            |difference| difference.abs() <= USED_SAME,
            percent,
            &|system| of(AGGREGATED).mean(system, USED) - of(REQUESTS).mean(system, USED),
        ),
        claim(
            "Its p95 of the time to the first token is within a factor of two",
            |factor| (1.0 / P95_FACTOR..=P95_FACTOR).contains(&factor),
            times,
            &|system| over(system, P95),
        ),
    ]
}

fn comparison(rows: &Rows) -> Table {
    let figures = [HOURS, USED, P75, P95];
    let columns = ["".to_owned()]
        .into_iter()
        .chain(figures.iter().flat_map(|figure| {
            [REQUESTS, AGGREGATED].map(|group| format!("{}, {group}", figure.name))
        }));
    Table::new(columns).with_rows(SYSTEMS.map(|system| {
        let cells = figures.iter().flat_map(|figure| {
            [REQUESTS, AGGREGATED].map(|group| rows.at(group, 0.0).shown(system, *figure))
        });
        core::iter::once(system.to_owned())
            .chain(cells)
            .collect::<Vec<_>>()
    }))
}

fn levels(profile: &Profile) -> Table {
    let columns = [
        "load",
        "memory utilisation",
        "requests in the engine",
        "p50 TTFT, s",
        "p95 TTFT, s",
        "p95 end to end, s",
    ];
    Table::new(columns).with_rows(profile.levels.iter().map(|level| {
        let at = |times: &[f64], index: usize| times.get(index).copied().unwrap_or(f64::NAN);
        [
            percent(level.load),
            percent(level.utilisation),
            short(level.in_flight),
            short(at(&level.ttft_s, 10)),
            short(at(&level.ttft_s, 19)),
            short(at(&level.e2e_s, 19)),
        ]
    }))
}
