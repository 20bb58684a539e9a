//! The closed loop of scalers on a synthetic week: the order of the strategies, constant load, and the aggregated model beside
//! requests.

use std::sync::Arc;

use isotherm_engine::model::{Config, Preset};
use isotherm_planner::PoolRules;
use isotherm_simulator::scaling::batch::BatchRules;
use isotherm_simulator::scaling::calibrate::Calibration;
use isotherm_simulator::scaling::cluster::{Cell, Cluster, Deployment};
use isotherm_simulator::scaling::forecast::arima_60;
use isotherm_simulator::scaling::instances::StartTimes;
use isotherm_simulator::scaling::profile::{Level, Profile, QUANTILES};
use isotherm_simulator::scaling::scaler::{
    ChironScaler, FixedScaler, Forecaster, LongTermRules, LongTermScaler, PlannerScaler,
    ReactiveScaler, Scaler, Strategy, Thresholds,
};
use isotherm_simulator::scaling::trace::Traces;
use isotherm_simulator::scaling::traffic::{Point, Series};

const SEED: u64 = 5;
const DAY_S: f64 = 86_400.0;

/// An instance of 5 requests a second whose memory is 70 % full at 70 % of that.
fn profile() -> Arc<Profile> {
    let level = |load: f64| Level {
        load,
        utilisation: load,
        in_flight: 60.0 * load,
        ttft_s: [0.1 / (1.0 - load); QUANTILES],
        e2e_s: [10.0 / (1.0 - load); QUANTILES],
    };
    Arc::new(Profile {
        capacity_per_s: 5.0,
        kv_tokens: 160_000.0,
        tokens: (1_155.0, 211.0),
        token_s: (5e-5, 5e-4),
        levels: [0.1, 0.3, 0.5, 0.7, 0.9, 0.95].map(level).to_vec(),
    })
}

fn cluster(traffic: Series, warmup_s: f64) -> Cluster {
    let length_s = traffic.length_s();
    Cluster {
        regions: 1,
        deployments: vec![Deployment {
            name: "model".to_owned(),
            profile: profile(),
            group: 0,
            start: 24,
            bounds: (2, 24),
            has_batch_manager: true,
            traffic: vec![traffic],
        }],
        times: StartTimes::TEXT,
        batch: BatchRules::default(),
        region_utilisation: 0.7,
        length_s,
        warmup_s,
        seed: SEED,
    }
}

fn play(cluster: &Cluster, mut scaler: impl Scaler) -> Cell {
    let outcome = cluster.run(&mut scaler);
    outcome.cells[0][0].clone()
}

#[test]
fn strategies_differ_as_they_are_meant_to() {
    println!("seed {SEED}");
    let week = Traces::twins(SEED).o365_c;
    let cluster = cluster(week.between(DAY_S, 3.0 * DAY_S), DAY_S);
    let theta = vec![profile().input_tokens_per_s(0.7)];
    let fixed = play(&cluster, FixedScaler);
    let reactive = play(&cluster, ReactiveScaler::new(Thresholds::TEXT));
    let chiron = play(&cluster, ChironScaler);
    let forecaster = Forecaster::Causal(arima_60);
    let paced = LongTermScaler::new(Strategy::Immediate, LongTermRules::TEXT, forecaster, theta);
    let immediate = play(&cluster, paced);
    let planned = play(&cluster, PlannerScaler::new(PoolRules::default()));

    let hours = |cell: &Cell| cell.ledger.hours();
    assert!(
        (hours(&fixed) - 24.0 * 24.0).abs() < 1.0,
        "{}",
        hours(&fixed)
    );
    assert!(
        hours(&reactive) < hours(&chiron),
        "{} {}",
        hours(&reactive),
        hours(&chiron)
    );
    assert!(hours(&planned) < hours(&fixed));
    let p95 = |cell: &Cell| cell.ttft.quantile(0.95);
    assert!(
        p95(&planned) < p95(&immediate),
        "{} {}",
        p95(&planned),
        p95(&immediate)
    );
    let wasted = |cell: &Cell| cell.ledger.wasted_hours();
    assert!(
        wasted(&planned) < wasted(&reactive),
        "{} {}",
        wasted(&planned),
        wasted(&reactive)
    );
    for cell in [&fixed, &reactive, &chiron, &immediate, &planned] {
        assert_eq!(cell.batch.missed, 0.0);
        assert!(cell.batch.served > 0.0);
    }
}

#[test]
fn the_aggregated_model_is_close_to_requests() {
    println!("seed {SEED}");
    let engine = Config {
        blocks: 10_000,
        ..Preset::Llama2_70bH100.config()
    };
    let calibration = Calibration {
        engine,
        length_s: 90.0,
        seed: SEED,
    };
    let profile = Arc::new(calibration.run());
    let point = |minute: usize| Point {
        interactive_per_s: profile.capacity_per_s * if minute < 10 { 1.2 } else { 2.0 },
        batch_per_s: 0.0,
        prompt_tokens: 1_155.0,
        output_tokens: 211.0,
    };
    let traffic = Series {
        interval_s: 60.0,
        points: (0..20).map(point).collect(),
    };
    let mut cluster = cluster(traffic, 0.0);
    cluster.deployments[0].profile = Arc::clone(&profile);
    cluster.deployments[0].start = 5;
    let aggregated = play(&cluster, ReactiveScaler::new(Thresholds::TEXT));
    let mut scaler = ReactiveScaler::new(Thresholds::TEXT);
    let requests = cluster.run_requests(&[engine], &mut scaler);
    let hours: f64 = requests[0]
        .ledgers
        .iter()
        .map(|ledger| ledger.hours())
        .sum();
    let ratio = aggregated.ledger.hours() / hours;
    assert!((0.8..1.25).contains(&ratio), "seed {SEED}: {ratio}");
    let used = requests[0].utilisation[0] - aggregated.utilisation;
    assert!(used.abs() < 0.15, "seed {SEED}: {used}");
}
