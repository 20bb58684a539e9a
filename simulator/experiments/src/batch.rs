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
use isotherm_simulator::{Arrangement, Outcome, Setup};

use crate::context::{Case, Context, WorkloadSource, config};
use crate::document::Document;
use crate::figures::Figure;
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
const P90: Figure =
    Figure::more("interactive p90 TTFT, s", "interactive_p90_s", short).less_is_better();
const DONE: Figure = Figure::more("batch done by the end of the day", "batch_done", short);
const ORACLE: Figure = Figure::more("the oracle's", "oracle_done", short);
const MISSED: Figure =
    Figure::more("batch past its deadline", "batch_missed", short).less_is_better();

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let profiles = profiles(context, &[ENGINE]);
    let Some(profile) = profiles.first() else {
        return Document::default();
    };
    let length_s = context.pick(LENGTH_S);
    let shares = context.points(&SHARES);
    let mut cases = Vec::new();
    for &share in &shares {
        for system in SYSTEMS {
            cases.push(case(profile, system, share, length_s));
        }
    }
    let jobs = context.jobs(SEEDS, &cases);
    let rows = Rows(context.map(&jobs, |(case, seed)| {
        let outcome = context.play(case, *seed);
        let mut row = case.row(*seed, &outcome);
        row.more.extend(figures(&outcome, length_s));
        row.more
            .insert("oracle_done", oracle(profile, case.x, length_s, *seed));
        row
    }));
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

fn case(profile: &Arc<Profile>, system: &str, share: f64, length_s: f64) -> Case {
    let base = config(PolicyName::Isotherm, Push::Pending);
    let wait_max = base.queue.wait_max;
    let tiers = TierRules {
        batch: BatchTier {
            length_max: 1_000_000,
            wait_max,
            promote_left: Duration::from_secs_f64(length_s / 24.0),
            release_below: if system == PAPER {
                PAPER_RELEASE
            } else {
                BatchTier::default().release_below
            },
            ..BatchTier::default()
        },
        ..TierRules::new(base.ttft_slo, wait_max)
    };
    let router = RouterConfig {
        tiers: (system != NO_TIERS).then_some(tiers),
        ..base
    };
    let profile = Arc::clone(profile);
    let source: WorkloadSource = Arc::new(move |seed| workload(&profile, share, length_s, seed));
    Case {
        group: GROUP.to_owned(),
        system: system.to_owned(),
        x: share,
        setup: Setup::one_region(ENGINE.config(), REPLICAS, Arrangement::Router(router)),
        source,
    }
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
        outcome
            .requests
            .iter()
            .filter(move |one| (one.tier == Tier::NonInteractive) == is_batch)
    };
    let mut times: Vec<f64> = of(false)
        .map(|one| one.ttft().map_or(f64::INFINITY, |time| time.as_secs_f64()))
        .collect();
    times.sort_by(f64::total_cmp);
    let day = Duration::from_secs_f64(length_s);
    let deadline = Duration::from_secs_f64(length_s * GRACE);
    let done = of(true)
        .filter(|one| one.ended.is_some_and(|at| at <= day && one.is_answered()))
        .count();
    let missed = of(true)
        .filter(|one| one.e2e().is_none_or(|time| time > deadline))
        .count();
    [
        (
            "interactive_p90_s",
            times.get(times.len() * 9 / 10).copied().unwrap_or(f64::NAN),
        ),
        ("batch_sent", of(true).count() as f64),
        ("batch_done", done as f64),
        ("batch_missed", missed as f64),
    ]
}

/// Batch requests that the aggregated model serves with the same rules.
fn oracle(profile: &Arc<Profile>, share: f64, length_s: f64, seed: u64) -> f64 {
    let (prompt_tokens, output_tokens) = profile.tokens;
    let points = (0..(length_s / 15.0) as usize).map(|step| Point {
        interactive_per_s: rate(profile, step as f64 * 15.0, length_s),
        batch_per_s: batch_rate(profile, share),
        prompt_tokens,
        output_tokens,
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
    let mut conclusions = Vec::new();
    let shares = shares.iter().filter(|share| **share > 0.0);
    for (&share, system) in shares.flat_map(|share| [(share, SYSTEM), (share, PAPER)]) {
        let panel = rows.at(GROUP, share);
        let case = format!("{} batch requests, {system}", percent(share));
        let slower = panel.mean(system, P90) / alone;
        let p90 = Conclusion::claim(
            "the interactive p90 is at most 1.05 of that without batch requests",
            slower <= 1.05,
        );
        let p90 = p90.measured(format!(
            "{} ({} s; without tiers {})",
            times(slower),
            panel.shown(system, P90),
            times(panel.mean(NO_TIERS, P90) / alone)
        ));
        let done = panel.mean(system, DONE) / panel.mean(system, ORACLE);
        let served = Conclusion::claim(
            "at least 0.9 of the batch requests that the oracle serves",
            done >= 0.9,
        );
        let served = served.measured(format!(
            "{} ({} of {})",
            times(done),
            panel.shown(system, DONE),
            panel.shown(system, ORACLE)
        ));
        let is_kept = panel.mean(system, MISSED) == 0.0;
        let missed = Conclusion::claim("no deadline is missed", is_kept)
            .measured(format!("{} missed", panel.shown(system, MISSED)));
        conclusions.extend([p90, served, missed].map(|claim| claim.in_case(&case)));
    }
    conclusions
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
