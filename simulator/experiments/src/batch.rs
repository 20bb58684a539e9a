//! Batch work beside interactive requests over a day, request by request through the router's gate.
//!
//! Four replicas; a day with a night and a peak, played in two hours. Batch requests come evenly. The gate lets them go while the memory of the pool
//! has room. The oracle is the aggregated model with the same rules: it sees the true utilisation without delay, and fills exactly up to the
//! threshold.

use core::time::Duration;
use std::sync::Arc;

use isotherm_policies::PolicyName;
use isotherm_report::number::{percent, short, times};
use isotherm_report::{Conclusion, Section, Table};
use isotherm_router::{BatchTier, Push, RouterConfig, Tier, TierRules};
use isotherm_simulator::prompt::Prompt;
use isotherm_simulator::scaling::batch::BatchRules;
use isotherm_simulator::scaling::cluster::{Cluster, Deployment};
use isotherm_simulator::scaling::profile::Profile;
use isotherm_simulator::scaling::scaler::FixedScaler;
use isotherm_simulator::scaling::traffic::{Point, Series};
use isotherm_simulator::workload::rng::SeededRng;
use isotherm_simulator::workload::{RequestClass, Session, Workload, lengths};
use isotherm_simulator::{Arrangement, Outcome, RequestRecord, Setup};

use crate::context::{Context, WorkloadSource, config, grid};
use crate::document::Document;
use crate::figures::Figure;
use crate::load::{quantile, ttft_s};
use crate::rows::Rows;
use crate::scaling::engines::{Engine, profiles};
use crate::scaling::scenario;

const SEEDS: u64 = 3;
const REPLICAS: usize = 4;
const ENGINE: Engine = Engine::Llama2H100;
/// Length of the day as it is played, s.
const LENGTH_S: [f64; 2] = [7_200.0, 1_200.0];
/// Part of the day for which requests may still end after the last was sent.
const GRACE: f64 = 0.5;
/// Interactive load at the peak and at night, of the capacity.
const PEAK: f64 = 0.75;
const NIGHT: f64 = 0.15;
/// Shares of batch requests among all.
const SHARES: [f64; 5] = [0.0, 0.1, 0.25, 0.4, 0.5];
const SYSTEM: &str = "Isotherm";
const NO_TIERS: &str = "without tiers";
/// The gate with the thresholds of the paper.
const PAPER: &str = "Isotherm, below 0.60 and 0.50";
const PAPER_RELEASE: [f64; 2] = [0.60, 0.50];
const SYSTEMS: [&str; 3] = [SYSTEM, PAPER, NO_TIERS];
const GROUP: &str = "a day";
const P90: Figure = Figure::less("interactive p90 TTFT, s", "interactive_p90_s", short);
const DONE: Figure = Figure::more("batch done by the end of the day", "batch_done", short);
const ORACLE: Figure = Figure::more("the oracle's", "oracle_done", short);
const MISSED: Figure = Figure::less("batch past its deadline", "batch_missed", short);

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let profiles = profiles(context, &[ENGINE]);
    let Some(profile) = profiles.first() else {
        return Document::default();
    };
    let length_s = context.pick(LENGTH_S);
    let shares = context.points(&SHARES);
    let cases = grid(GROUP, &shares, &SYSTEMS, |share, system| {
        let profile = Arc::clone(profile);
        let source: WorkloadSource =
            Arc::new(move |seed| workload(&profile, share, length_s, seed));
        (setup(system, length_s), source)
    });
    let rows = context.run_with(SEEDS, &cases, &|case, seed, outcome| {
        let oracle = oracle(profile, case.x, length_s, seed);
        let figures = figures(outcome, length_s).into_iter();
        figures.chain([("oracle_done", oracle)]).collect()
    });
    Document {
        about: vec![
            format!(
                "{REPLICAS} replicas of Llama-2-70B on 8 H100; interactive load from {} to {} of the capacity over a day played in {length_s} s; batch requests evenly, with \
                 a deadline at the end of another half day. Without tiers, every request is alike.",
                percent(NIGHT),
                percent(PEAK)
            ),
            "Batch done: before the last interactive request is sent.".into(),
        ],
        conclusions: conclusions(&rows, &shares),
        sections: vec![Section::new("Shares of batch requests").table(table(&rows))],
        rows,
        ..Document::default()
    }
}

/// Interactive requests a second.
fn rate(profile: &Profile, at_s: f64, length_s: f64) -> f64 {
    let wave = (1.0 - (at_s / length_s * core::f64::consts::TAU).cos()) / 2.0;
    (NIGHT + (PEAK - NIGHT) * wave) * profile.capacity_per_s * REPLICAS as f64
}

/// Batch requests a second at a share of all requests.
fn batch_rate(profile: &Profile, share: f64) -> f64 {
    (NIGHT + PEAK) / 2.0 * profile.capacity_per_s * REPLICAS as f64 * share / (1.0 - share)
}

fn setup(system: &str, length_s: f64) -> Setup {
    let base = config(PolicyName::Isotherm, Push::Pending);
    let wait_max = base.queue.wait_max;
    let default = BatchTier::default();
    let tiers = TierRules {
        batch: BatchTier {
            length_max: 1_000_000,
            wait_max,
            promote_left: Duration::from_secs_f64(length_s / 24.0),
            release_below: if system == PAPER {
                PAPER_RELEASE
            } else {
                default.release_below
            },
            ..default
        },
        ..TierRules::new(base.ttft_slo, wait_max)
    };
    let router = RouterConfig {
        tiers: (system != NO_TIERS).then_some(tiers),
        ..base
    };
    Setup::one_region(ENGINE.config(), REPLICAS, Arrangement::Router(router))
}

/// Interactive requests, equal at every share, and batch requests beside them.
fn workload(profile: &Profile, share: f64, length_s: f64, seed: u64) -> Workload {
    let mut sessions = Vec::new();
    let deadline = Duration::from_secs_f64(length_s * GRACE);
    for (tier, stream) in [(Tier::InteractiveNormal, 1), (Tier::NonInteractive, 2)] {
        let mut rng = SeededRng::new(seed.wrapping_mul(31).wrapping_add(stream));
        let is_batch = tier == Tier::NonInteractive;
        let mut at = 0.0;
        loop {
            let rate = if is_batch {
                batch_rate(profile, share)
            } else {
                rate(profile, at, length_s)
            };
            if rate <= 0.0 {
                break;
            }
            at += rng.exponential(1.0 / rate);
            if at >= length_s {
                break;
            }
            let lengths = lengths::sample(&mut rng);
            // Streams have texts of their own.
            let mut text = |tokens| {
                let mut piece = rng.text(tokens);
                piece.id = piece.id * 4 + stream;
                piece
            };
            let (prompt, answer) = (text(lengths.prompt), text(lengths.answer.max(1)));
            let start = Duration::from_secs_f64(at);
            let class = RequestClass {
                tier,
                deadline: is_batch.then_some(deadline),
                ..RequestClass::default()
            };
            sessions.push(
                Session::one(rng.key(), start, Prompt::new([prompt]), answer).with_class(class),
            );
        }
    }
    sessions.sort_by_key(|session| session.starts);
    Workload {
        name: GROUP.to_owned(),
        sessions,
        ..Workload::default()
    }
}

fn figures(outcome: &Outcome, length_s: f64) -> [(&'static str, f64); 4] {
    let of = |is_batch: bool| {
        let requests = outcome.requests.iter();
        requests.filter(move |one| (one.tier == Tier::NonInteractive) == is_batch)
    };
    let day = Duration::from_secs_f64(length_s);
    let deadline = Duration::from_secs_f64(length_s * GRACE);
    let done = |one: &&RequestRecord| one.ended.is_some_and(|at| at <= day && one.is_answered());
    let missed = |one: &&RequestRecord| one.e2e().is_none_or(|time| time > deadline);
    [
        (
            "interactive_p90_s",
            quantile(of(false).map(ttft_s), (9, 10)),
        ),
        ("batch_sent", of(true).count() as f64),
        ("batch_done", of(true).filter(done).count() as f64),
        ("batch_missed", of(true).filter(missed).count() as f64),
    ]
}

/// Batch requests that the aggregated model serves with the same rules.
fn oracle(profile: &Arc<Profile>, share: f64, length_s: f64, seed: u64) -> f64 {
    let points = (0..(length_s / 15.0) as usize).map(|step| Point {
        interactive_per_s: rate(profile, step as f64 * 15.0, length_s),
        batch_per_s: batch_rate(profile, share),
        ..profile.point()
    });
    let traffic = Series {
        interval_s: 15.0,
        points: points.collect(),
    };
    let deployment = Deployment {
        start: REPLICAS,
        bounds: (REPLICAS, REPLICAS),
        ..scenario::deployment(GROUP, profile, vec![traffic])
    };
    let cluster = Cluster {
        batch: BatchRules {
            promoted_s: length_s * GRACE - length_s / 24.0,
            deadline_s: length_s * GRACE,
            ..BatchRules::default()
        },
        seed,
        ..scenario::cluster(vec![deployment], 0.0)
    };
    let outcome = cluster.run(&mut FixedScaler);
    outcome.of(|_| true).map(|cell| cell.batch.served).sum()
}

fn conclusions(rows: &Rows, shares: &[f64]) -> Vec<Conclusion> {
    let alone = rows.at(GROUP, 0.0).mean(SYSTEM, P90);
    let of_cell = |(share, system): (f64, &str)| {
        let panel = rows.at(GROUP, share);
        let slower = panel.mean(system, P90) / alone;
        let p90 = format!(
            "{} ({} s; without tiers {})",
            times(slower),
            panel.shown(system, P90),
            times(panel.mean(NO_TIERS, P90) / alone)
        );
        let done = panel.mean(system, DONE) / panel.mean(system, ORACLE);
        let served = format!(
            "{} ({} of {})",
            times(done),
            panel.shown(system, DONE),
            panel.shown(system, ORACLE)
        );
        let missed = format!("{} missed", panel.shown(system, MISSED));
        let claims = [
            (
                "the interactive p90 is at most 1.05 of that without batch requests",
                slower <= 1.05,
                p90,
            ),
            (
                "at least 0.9 of the batch requests that the oracle serves",
                done >= 0.9,
                served,
            ),
            (
                "no deadline is missed",
                panel.mean(system, MISSED) == 0.0,
                missed,
            ),
        ];
        let case = format!("{} batch requests, {system}", percent(share));
        claims.map(|(text, holds, measured)| {
            let claim = Conclusion::claim(text, holds).in_case(&case);
            claim.measured(measured)
        })
    };
    let shares = shares.iter().filter(|share| **share > 0.0);
    let cells = shares.flat_map(|share| [(*share, SYSTEM), (*share, PAPER)]);
    cells.flat_map(of_cell).collect()
}

fn table(rows: &Rows) -> Table {
    let figures = [P90, DONE, ORACLE, MISSED];
    let shown = figures.map(|figure| figure.name);
    let columns = ["share of batch requests", "system"]
        .into_iter()
        .chain(shown);
    rows.table("share of batch requests", &figures)
        .headline(&columns.collect::<Vec<_>>(), |row| row.text(2) == SYSTEM)
}
