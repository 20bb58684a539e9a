//! DualMap, Figure 12: replicas that join (4 to 8) and leave (8 to 4).
//!
//! As in the paper: under a rate that four replicas cannot serve, four more come after 74 s; under half of that rate, eight
//! become four one after the other. Rates are set for our engine. Nothing here decides *when* to scale: the moments are
//! given, what is shown is how fast each policy uses what has come and how little it loses with what goes.

use core::time::Duration;

use isotherm_engine::model::presets::Preset;
use isotherm_report::chart::{Chart, Curve, CurveStyle, Lines};
use isotherm_report::number::{percent, short};

use crate::context::{Case, Context};
use crate::document::Document;
use crate::dualmap::{
    AFFINITY, DUAL_MAP, GOODPUT_SHARE, ISOTHERM, LEAST_LOADED, PUSHING, TOOLS, arrangement, setup,
};
use crate::explain;
use crate::paper::{PaperComparison, PaperFigure};
use crate::rows::{Rows, Stat};
use crate::workloads;
use isotherm_report::{Conclusion, Section};
use isotherm_simulator::setup::{Action, Change};
use isotherm_simulator::{Outcome, ReplicaSetup};

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
const SOURCE: &str = "DualMap, section A.2.3, text on Figure 12";

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let cases: Vec<Case> = [UP, DOWN]
        .into_iter()
        .flat_map(|group| SYSTEMS.map(|system| case(group, system)))
        .collect();
    let jobs = context.jobs(SEEDS, &cases);
    let outcomes = context.map(&jobs, |(case, seed)| case.run(*seed));
    let runs = || jobs.iter().zip(&outcomes);
    let row = |((case, seed), outcome): (&(&Case, u64), &Outcome)| case.row(*seed, outcome);
    let rows = Rows(runs().map(row).collect());
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
    let mut conclusions = Vec::new();
    for system in SYSTEMS {
        conclusions.push(Conclusion::note(format!(
            "{UP}, {system}: {} within the SLO before the replicas came, {} in the 60 s after, {} once settled.",
            percent(share(UP, system, Duration::ZERO, MORE_AT)),
            percent(share(UP, system, MORE_AT, MORE_AT + Duration::from_secs(60))),
            percent(after(system))
        )));
        conclusions.push(Conclusion::note(format!(
            "{DOWN}, {system}: {} within the SLO over the whole run, {} after the last replica had gone.",
            percent(all(system)),
            percent(share(DOWN, system, LESS_AT + LESS_EACH * 4, LENGTH))
        )));
    }
    for system in [DUAL_MAP, ISOTHERM] {
        conclusions.push(Conclusion::claim(
            format!("{DOWN}: {system} keeps 90 % within the SLO."),
            all(system) >= GOODPUT_SHARE,
        ));
    }
    let seeds = context.seeds(SEEDS);
    if seeds.len() > 1 {
        conclusions.push(Conclusion::note(format!(
            "Shares are means of {} seeds; the curves are those of the first.",
            seeds.len()
        )));
    }
    let mut sections: Vec<Section> = [UP, DOWN].map(|group| section(group, &of)).into();
    let table = explain::table(&rows, explain::group_and_system);
    sections.push(Section::detail("Whole runs").table(table));
    Document {
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
            PaperComparison::one(
                "4 to 8: share within the SLO once settled (the paper: \"promptly rises to 90 %\")",
                PaperFigure::share(0.9, SOURCE),
                after(DUAL_MAP),
            ),
            PaperComparison::one(
                "8 to 4: share within the SLO (the paper: \"over 90 %\")",
                PaperFigure::share(0.9, SOURCE),
                all(DUAL_MAP),
            ),
        ],
        conclusions,
        sections,
        rows,
        ..Document::default()
    }
}

fn case(group: &str, system: &str) -> Case {
    let (replicas, rate) = if group == UP {
        (FEW, RATE_UP)
    } else {
        (MANY, RATE_DOWN)
    };
    let mut setup = setup(replicas, arrangement(system));
    setup.changes = changes(group);
    // The whole length whatever the effort: a shorter run would not reach the change.
    let requests = rate * LENGTH.as_secs_f64();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a few thousand"
    )]
    let source = workloads::tools(rate, requests as usize);
    Case::new(
        group,
        system,
        0.0,
        setup,
        &workloads::keyed_by_prefix(source),
    )
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
    let within = sent().filter(|request| {
        request
            .ttft()
            .is_some_and(|ttft| ttft <= isotherm_simulator::setup::SLO)
    });
    within.count() as f64 / sent().count() as f64
}

fn section<'a>(group: &str, of: &impl Fn(&str, &str) -> Option<&'a Outcome>) -> Section {
    let event = match group {
        UP => (MORE_AT.as_secs_f64(), "four replicas join".to_owned()),
        _ => (LESS_AT.as_secs_f64(), "the first of four leaves".to_owned()),
    };
    let chart = |title: String, caption: &str, lines, y_name: &str, reference| {
        let plot = Lines {
            lines,
            x_name: "seconds".into(),
            y_name: y_name.into(),
            reference,
            events: vec![event.clone()],
            ..Lines::default()
        };
        Chart::new(title, caption, plot).with_series(SYSTEMS)
    };
    let curve = |(series, system): (usize, &&str)| {
        Some(Curve {
            series,
            points: attainments(of(group, system)?),
            style: CurveStyle::Plain,
        })
    };
    let curves = SYSTEMS.iter().enumerate().filter_map(curve).collect();
    let title = format!("{group}: share within the SLO");
    let reference = Some((GOODPUT_SHARE, "90 %".to_owned()));
    let mut charts = vec![chart(
        title,
        "By colour as above.",
        curves,
        "share within 5 s",
        reference,
    )];
    for system in [DUAL_MAP, ISOTHERM] {
        if let Some(outcome) = of(group, system) {
            let title = format!("{group}: prompt tokens to be computed, {system}");
            let caption = "A line for each replica, in any colour.";
            charts.push(chart(
                title,
                caption,
                backlogs(outcome),
                "pending prefill tokens",
                None,
            ));
        }
    }
    Section::detail(group).charts(charts)
}

/// Share within the SLO by windows.
fn attainments(outcome: &Outcome) -> Vec<(f64, f64)> {
    let windows = LENGTH.as_secs() / WINDOW.as_secs();
    let window = |window| {
        let from = WINDOW * window;
        (from.as_secs_f64(), attainment(outcome, from, from + WINDOW))
    };
    (0..u32::try_from(windows).unwrap_or(0))
        .map(window)
        .collect()
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
