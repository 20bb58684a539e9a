//! DualMap, Figure 12: replicas that come (4 to 8) and go (8 to 4).
//!
//! As in the paper: under a rate that four replicas cannot serve, four more come after 74 s; under half of that rate, eight
//! become four one after the other. Rates are set for our engine. Nothing here decides *when* to scale: the moments are
//! given, what is shown is how fast each policy uses what has come and how little it loses with what goes.

use core::time::Duration;

use isotherm_engine::model::presets::Preset;
use isotherm_report::chart::{Chart, Curve, CurveStyle, Lines, Scale};
use isotherm_report::number::{percent, short};

use super::document::{Document, Section};
use super::dualmap::{
    AFFINITY, DUAL_MAP, GOODPUT_SHARE, ISOTHERM, LEAST_LOADED, PUSHING, TOOLS, balancing, setup,
};
use super::explain;
use super::lab::{Case, Lab, outcome, row};
use super::paper::{Against, Stated};
use super::rows::{Rows, Stat};
use super::workloads;
use crate::setup::{Action, Change};
use crate::{Outcome, ReplicaSetup};
use isotherm_report::Conclusion;

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
/// When the first replica goes, and how long until the next.
const LESS_AT: Duration = Duration::from_secs(100);
const LESS_EACH: Duration = Duration::from_secs(30);
/// How long requests are sent.
const LENGTH: Duration = Duration::from_secs(300);
/// Attainment is counted over windows of this length.
const WINDOW: Duration = Duration::from_secs(10);
const SOURCE: &str = "DualMap, section A.2.3, text on Figure 12";

/// Runs it.
pub(super) fn run(lab: &Lab) -> anyhow::Result<Document> {
    let cases: Vec<Case> = [UP, DOWN]
        .into_iter()
        .flat_map(|group| SYSTEMS.map(|system| case(group, system)))
        .collect();
    let seeds = lab.seeds(SEEDS);
    let jobs: Vec<(&Case, u64)> = cases
        .iter()
        .flat_map(|case| seeds.iter().map(move |seed| (case, *seed)))
        .collect();
    let outcomes = lab.map(&jobs, |(case, seed)| outcome(case, *seed));
    let runs = || jobs.iter().zip(&outcomes);
    let rows = Rows(
        runs()
            .map(|((case, seed), outcome)| row(case, *seed, outcome))
            .collect(),
    );
    let all_of = |group: &str, system: &str| -> Vec<&Outcome> {
        runs()
            .filter(|((case, _), _)| case.group == group && case.system == system)
            .map(|(_, outcome)| outcome)
            .collect()
    };
    // A curve is one run's.
    let of = |group: &str, system: &str| all_of(group, system).first().copied();
    // Full strength, and the queue that had grown served: the second half of what follows.
    let settled = MORE_AT + (LENGTH - MORE_AT) / 2;
    let share = |group, system, from, to| {
        let outcomes = all_of(group, system);
        Stat::of(outcomes.iter().map(|outcome| attainment(outcome, from, to))).mean
    };
    let after = |system| share(UP, system, settled, LENGTH);
    let all = |system| share(DOWN, system, Duration::ZERO, LENGTH);
    let mut findings = Vec::new();
    for system in SYSTEMS {
        findings.push(Conclusion::note(format!(
            "{UP}, {system}: {} within the SLO before the replicas came, {} in the 60 s after, {} once settled.",
            percent(share(UP, system, Duration::ZERO, MORE_AT)),
            percent(share(UP, system, MORE_AT, MORE_AT + Duration::from_secs(60))),
            percent(after(system))
        )));
        findings.push(Conclusion::note(format!(
            "{DOWN}, {system}: {} within the SLO over the whole run, {} after the last replica had gone.",
            percent(all(system)),
            percent(share(DOWN, system, LESS_AT + LESS_EACH * 4, LENGTH))
        )));
    }
    for system in [DUAL_MAP, ISOTHERM] {
        findings.push(Conclusion::claim(
            format!("{DOWN}: {system} keeps 90 % within the SLO."),
            all(system) >= GOODPUT_SHARE,
        ));
    }
    if seeds.len() > 1 {
        findings.push(Conclusion::note(format!(
            "Shares are means of {} seeds; the curves are those of the first.",
            seeds.len()
        )));
    }
    let sections = [UP, DOWN]
        .into_iter()
        .map(|group| section(group, &of))
        .collect::<anyhow::Result<Vec<Section>>>()?;
    let cells: Vec<(&str, &str, f64)> = [UP, DOWN]
        .into_iter()
        .flat_map(|group| SYSTEMS.map(|system| (group, system, 0.0)))
        .collect();
    let figures = Section {
        title: "Whole runs".into(),
        table: Some(explain::table(&rows, &cells)),
        ..Section::default()
    };
    Ok(Document {
        name: "dualmap-12",
        title: "DualMap, Figure 12: replicas that come and go".into(),
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
            Against::one(
                "4 to 8: share within the SLO once settled (the paper: \"promptly rises to 90 %\")",
                Stated::share(0.9, SOURCE),
                after(DUAL_MAP),
            ),
            Against::one(
                "8 to 4: share within the SLO (the paper: \"over 90 %\")",
                Stated::share(0.9, SOURCE),
                all(DUAL_MAP),
            ),
        ],
        findings,
        sections: sections.into_iter().chain([figures]).collect(),
        rows,
    })
}

fn case(group: &str, system: &str) -> Case {
    let (replicas, rate) = if group == UP {
        (FEW, RATE_UP)
    } else {
        (MANY, RATE_DOWN)
    };
    let mut setup = setup(replicas, balancing(system));
    setup.changes = changes(group);
    // The whole length whatever the effort: a shorter run would not reach the change.
    let requests = rate * LENGTH.as_secs_f64();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a few thousand"
    )]
    let draw = workloads::tools(rate, requests as usize);
    Case {
        group: group.to_owned(),
        system: system.to_owned(),
        x: 0.0,
        setup,
        draw: workloads::keyed_by_prefix(draw),
    }
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

/// The share within the SLO of requests sent in a time.
fn attainment(outcome: &Outcome, from: Duration, to: Duration) -> f64 {
    let sent = || {
        outcome
            .requests
            .iter()
            .filter(|request| !request.warmup && (from..to).contains(&request.sent))
    };
    let within =
        sent().filter(|request| request.ttft().is_some_and(|ttft| ttft <= crate::setup::SLO));
    within.count() as f64 / sent().count() as f64
}

fn section<'a>(
    group: &str,
    of: &impl Fn(&str, &str) -> Option<&'a Outcome>,
) -> anyhow::Result<Section> {
    let moments: Vec<(f64, String)> = match group {
        UP => vec![(MORE_AT.as_secs_f64(), "four replicas come".into())],
        _ => vec![(LESS_AT.as_secs_f64(), "the first of four goes".into())],
    };
    let curve = |outcome: &Outcome| -> Vec<(f64, f64)> {
        let windows = LENGTH.as_secs() / WINDOW.as_secs();
        (0..u32::try_from(windows).unwrap_or(0))
            .map(|window| {
                let from = WINDOW * window;
                (from.as_secs_f64(), attainment(outcome, from, from + WINDOW))
            })
            .collect()
    };
    let mut charts = vec![draw(
        (
            &format!("{group}: share within the SLO"),
            "By colour as above.",
        ),
        SYSTEMS
            .iter()
            .enumerate()
            .filter_map(|(series, system)| {
                let points = curve(of(group, system)?);
                Some(Curve {
                    series,
                    points,
                    style: CurveStyle::Plain,
                })
            })
            .collect(),
        (
            "share within 5 s",
            &moments,
            Some((GOODPUT_SHARE, "90 %".to_owned())),
        ),
    )?];
    for system in [DUAL_MAP, ISOTHERM] {
        if let Some(outcome) = of(group, system) {
            let title = format!("{group}: prompt tokens to be computed, {system}");
            charts.push(draw(
                (
                    &title,
                    "One line a replica; the colour says nothing but which.",
                ),
                backlogs(outcome),
                ("pending prefill tokens", &moments, None),
            )?);
        }
    }
    Ok(Section {
        title: group.to_owned(),
        key: SYSTEMS.map(String::from).into(),
        charts,
        ..Section::default()
    })
}

fn backlogs(outcome: &Outcome) -> Vec<Curve> {
    (0..u32::try_from(MANY).unwrap_or(0))
        .map(|number| Curve {
            series: number as usize,
            style: CurveStyle::Plain,
            points: outcome
                .samples
                .iter()
                .filter(|sample| sample.at <= LENGTH)
                .filter_map(|sample| {
                    let one = sample.replicas.iter().find(|one| one.replica == number)?;
                    Some((sample.at.as_secs_f64(), one.pending_prefill_tokens as f64))
                })
                .collect(),
        })
        .collect()
}

type Frame<'a> = (&'a str, &'a [(f64, String)], Option<(f64, String)>);

fn draw(
    (title, explanation): (&str, &str),
    lines: Vec<Curve>,
    (y_name, moments, mark): Frame<'_>,
) -> anyhow::Result<Chart> {
    let chart = Lines {
        lines,
        x_name: "seconds".into(),
        y_name: y_name.into(),
        scale: Scale::Linear,
        reference: mark,
        events: moments.to_vec(),
        y_max: None,
    };
    Ok(Chart::new(title, explanation, chart))
}
