//! DualMap, Figure 12: replicas that join (4 to 8) and leave (8 to 4).
//!
//! As in the paper: under a rate that four replicas cannot serve, four more come after 74 s; under half of that rate, eight
//! become four one after the other. Rates are set for our engine. The moments are given: the experiment shows how fast each
//! policy uses what has come and how little it loses with what goes.

use core::time::Duration;

use isotherm_engine::model::presets::Preset;
use isotherm_report::number::{percent, short};
use isotherm_report::{Conclusion, Section, Table};
use isotherm_simulator::setup::{Action, Change, SLO};
use isotherm_simulator::{Outcome, ReplicaSetup, Setup};

use crate::context::{Case, Context, WorkloadSource, grid};
use crate::document::Document;
use crate::dualmap::{
    AFFINITY, DUAL_MAP, GOODPUT_SHARE, ISOTHERM, LEAST_LOADED, PUSHING, TOOLS, arrangement, setup,
};
use crate::explain;
use crate::paper::Source;
use crate::rows::{Rows, Stat};
use crate::workloads;

const SEEDS: u64 = 1;
const UP: &str = "4 to 8";
const DOWN: &str = "8 to 4";
const SYSTEMS: [&str; 4] = [AFFINITY, LEAST_LOADED, DUAL_MAP, ISOTHERM];
const FEW: usize = 4;
const MANY: usize = 8;
/// When the paper's scheduler added replicas.
const MORE_AT: Duration = Duration::from_secs(74);
/// Requests per second: more than four replicas serve.
const RATE_UP: f64 = 8.0;
/// Half of it: little for eight, enough for four.
const RATE_DOWN: f64 = 4.0;
/// When the first replica leaves, and the time until the next leaves.
const LESS_AT: Duration = Duration::from_secs(100);
const LESS_EACH: Duration = Duration::from_secs(30);
/// Length of the time in which clients send.
const LENGTH: Duration = Duration::from_secs(300);
/// Attainment is counted over windows of this length.
const WINDOW: Duration = Duration::from_secs(10);
const SOURCE: Source = Source("DualMap, section A.2.3, text on Figure 12");

/// Every run with its case, in the order of the seeds.
struct Runs<'a>(Vec<(&'a Case, Outcome)>);

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let cases =
        [UP, DOWN].map(|group| grid(group, &[0.0], &SYSTEMS, |_, system| parts(group, system)));
    let cases = cases.concat();
    let jobs = context.jobs(SEEDS, &cases);
    let runs = context.map(&jobs, |(case, seed)| {
        let outcome = context.play(case, *seed);
        (case.row(*seed, &outcome), (*case, outcome))
    });
    let (rows, runs): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
    let (rows, runs) = (Rows(rows), Runs(runs));
    let windows = Section::detail("Share within the SLO by windows, first seed");
    let sections = vec![
        windows.table(windows_table(&runs)),
        Section::detail("Whole runs").table(explain::table(&rows, "")),
    ];
    Document {
        about: vec![format!(
            "{TOOLS} (tools and agents) on replicas of Llama-3.1-8B on two A100. Up: {} requests/s on 4 replicas, 4 more after {} s. Down: {} requests/s on 8 \
             replicas, of which 4 leave one after the other from {} s on, each finishing what it has. Share within the SLO (5 s) by windows of {} s, by when a request was sent. {PUSHING}",
            short(RATE_UP),
            MORE_AT.as_secs(),
            short(RATE_DOWN),
            LESS_AT.as_secs(),
            WINDOW.as_secs()
        )],
        paper: vec![
            SOURCE.share(
                "4 to 8: share within the SLO once settled (the paper: \"promptly rises to 90 %\")",
                (0.9, 0.9),
                &[runs.settled(DUAL_MAP)],
            ),
            SOURCE.share(
                "8 to 4: share within the SLO (the paper: \"over 90 %\")",
                (0.9, 0.9),
                &[runs.share(DOWN, DUAL_MAP, Duration::ZERO, LENGTH)],
            ),
        ],
        conclusions: conclusions(&runs, context.seeds(SEEDS).len()),
        sections,
        rows,
        ..Document::default()
    }
}

fn conclusions(runs: &Runs<'_>, seeds: usize) -> Vec<Conclusion> {
    let share = |group, system, from, to| percent(runs.share(group, system, from, to));
    let mut conclusions = Vec::new();
    for system in SYSTEMS {
        conclusions.push(Conclusion::note(format!(
            "{UP}, {system}: {} within the SLO before the replicas came, {} in the 60 s after, {} once settled.",
            share(UP, system, Duration::ZERO, MORE_AT),
            share(UP, system, MORE_AT, MORE_AT + Duration::from_secs(60)),
            percent(runs.settled(system))
        )));
        conclusions.push(Conclusion::note(format!(
            "{DOWN}, {system}: {} within the SLO over the whole run, {} after the last replica had gone.",
            share(DOWN, system, Duration::ZERO, LENGTH),
            share(DOWN, system, LESS_AT + LESS_EACH * 4, LENGTH)
        )));
    }
    conclusions.extend([DUAL_MAP, ISOTHERM].map(|system| {
        Conclusion::claim(
            format!("{DOWN}: {system} keeps 90 % within the SLO."),
            runs.share(DOWN, system, Duration::ZERO, LENGTH) >= GOODPUT_SHARE,
        )
    }));
    if seeds > 1 {
        conclusions.push(Conclusion::note(format!(
            "Shares are means of {seeds} seeds; the windows are those of the first."
        )));
    }
    conclusions
}

fn parts(group: &str, system: &str) -> (Setup, WorkloadSource) {
    let (replicas, rate) = match group {
        UP => (FEW, RATE_UP),
        _ => (MANY, RATE_DOWN),
    };
    let setup = Setup {
        changes: changes(group),
        ..setup(replicas, arrangement(system))
    };
    // The whole length whatever the effort: a shorter run would not reach the change.
    let requests = rate * LENGTH.as_secs_f64();
    let source = workloads::tools(rate, requests as usize);
    (setup, workloads::keyed_by_prefix(source))
}

fn changes(group: &str) -> Vec<Change> {
    let replica = ReplicaSetup::new(Preset::Llama31_8b2xA100.config());
    if group == UP {
        let what = Action::Join { region: 0, replica };
        return vec![Change { at: MORE_AT, what }; MANY - FEW];
    }
    (FEW..MANY)
        .zip(0..)
        .map(|(replica, number)| Change {
            at: LESS_AT + LESS_EACH * number,
            what: Action::Drain { replica },
        })
        .collect()
}

impl Runs<'_> {
    fn outcomes(&self, group: &str, system: &str) -> impl Iterator<Item = &Outcome> {
        let is_of = move |case: &Case| case.group == group && case.system == system;
        let runs = self.0.iter().filter(move |(case, _)| is_of(case));
        runs.map(|(_, outcome)| outcome)
    }

    /// The share within the SLO of requests sent in a time: mean over the seeds.
    fn share(&self, group: &str, system: &str, from: Duration, to: Duration) -> f64 {
        let outcomes = self.outcomes(group, system);
        Stat::of(outcomes.map(|outcome| attainment(outcome, from, to))).mean
    }

    /// The share at full strength, with the grown queue served: the second half of what follows.
    fn settled(&self, system: &str) -> f64 {
        self.share(UP, system, MORE_AT + (LENGTH - MORE_AT) / 2, LENGTH)
    }
}

/// The share within the SLO of requests sent in a time.
fn attainment(outcome: &Outcome, from: Duration, to: Duration) -> f64 {
    let requests = outcome.requests.iter();
    let sent = requests.filter(|request| !request.warmup && (from..to).contains(&request.sent));
    let within = sent
        .clone()
        .filter(|request| request.ttft().is_some_and(|ttft| ttft <= SLO));
    within.count() as f64 / sent.count() as f64
}

/// The share within the SLO in each window of the first seed.
fn windows_table(runs: &Runs<'_>) -> Table {
    let mut table = Table::new(["group", "from, s"].into_iter().chain(SYSTEMS));
    for group in [UP, DOWN] {
        for from in (0..LENGTH.as_secs()).step_by(WINDOW.as_secs() as usize) {
            let start = Duration::from_secs(from);
            let shares = SYSTEMS.map(|system| {
                let first = runs.outcomes(group, system).next();
                first.map_or_else(String::new, |outcome| {
                    percent(attainment(outcome, start, start + WINDOW))
                })
            });
            table.push(
                [group.to_owned(), from.to_string()]
                    .into_iter()
                    .chain(shares),
            );
        }
    }
    table
}
