//! The default policy, `isotherm`, on every standard workload, beside every other policy and the oracle.
//!
//! Three figures decide: throughput, requests within the SLO (effective capacity), p90 time to first token. On each workload
//! and for each figure `isotherm` is held against the *best* other system of that figure, so on one workload it may face
//! three different ones. Each other policy runs with blind pushing and with the shipped rule (pending requests); whichever is
//! better counts. Everything else is as shipped. A ratio above 1 is better, also for times (theirs over ours).
//!
//! The constants of the policy were chosen on seeds 1 to 3, so other ones judge it: unless told otherwise, those from 101 on.
//!
//! A ratio is of means over the seeds; its spread is of the ratios seed by seed, on the same workload.

use isotherm_report::chart::{Bar, Bars, Group};
use isotherm_report::number::{percent, short, times};
use isotherm_router::{PolicyName, Push, RouterConfig};

use super::document::{Chart, Document, Finding, Section, Table};
use super::explain;
use super::lab::{Case, Effort, Lab};
use super::rows::{Row, Rows, Stat};
use crate::Balancing;
use crate::workload::Workload;
use crate::workload::standard::{Standard, standard};

const SEEDS: u64 = 5;
const OURS: &str = "isotherm";
const ORACLE: &str = "oracle";
/// As good as the best other system, but for what seeds differ by.
const RATIO_MIN: f64 = 0.98;
/// Strictly better than it: by more than seeds differ by.
const BETTER: f64 = 1.005;
/// Behind it is what is below this: as good, but for what a figure is rounded by.
const NOT_BEHIND: f64 = 1.0 - 0.0005;
/// Not among the seeds on which the constants were chosen.
const FIRST_SEED: u64 = 101;

/// A figure that decides.
struct Goal {
    name: &'static str,
    figure: fn(&Row) -> f64,
    /// Whether less of it is better.
    less: bool,
}

const GOALS: [Goal; 3] = [
    Goal {
        name: "throughput",
        figure: |row| row.summary.throughput_tokens_per_s,
        less: false,
    },
    Goal {
        name: "requests within the SLO",
        figure: |row| row.summary.slo_attainment,
        less: false,
    },
    Goal {
        name: "p90 TTFT",
        figure: |row| row.summary.ttft_p90_s,
        less: true,
    },
];

impl Goal {
    /// How many times as good `ours` is as `theirs`. Two zeros are equal.
    fn ratio(&self, ours: f64, theirs: f64) -> f64 {
        let (more, than) = if self.less {
            (theirs, ours)
        } else {
            (ours, theirs)
        };
        if more == than { 1.0 } else { more / than }
    }

    fn mean(&self, rows: &Rows, group: &str, system: &str) -> f64 {
        rows.mean(group, system, 0.0, self.figure)
    }

    /// The best other system.
    fn best<'a>(&self, rows: &Rows, group: &str, others: &'a [String]) -> Option<&'a str> {
        let better = |a: f64, b: f64| {
            if self.less {
                b.total_cmp(&a)
            } else {
                a.total_cmp(&b)
            }
        };
        others
            .iter()
            .map(String::as_str)
            .max_by(|a, b| better(self.mean(rows, group, a), self.mean(rows, group, b)))
    }
}

/// `isotherm` against one other system.
struct Verdict {
    against: String,
    ratio: f64,
    spread: Stat,
}

/// Runs it.
pub(super) fn run(lab: &Lab) -> anyhow::Result<Document> {
    let lab = &Lab::new(Effort {
        seed: Some(lab.effort().seed.unwrap_or(FIRST_SEED)),
        ..lab.effort().clone()
    });
    let standards = standard();
    let systems = systems();
    let rows = lab.run(SEEDS, &cases(lab, &standards, &systems));
    let others: Vec<String> = systems
        .iter()
        .map(|(name, _)| name.clone())
        .filter(|name| name != OURS && name != ORACLE)
        .collect();
    let groups: Vec<&str> = standards.iter().map(|standard| standard.name).collect();
    let mut sections = vec![Section {
        title: "isotherm over the best other system of each figure".into(),
        text: "Above 1: better than every other policy. The line across is 1; whiskers are the least and the greatest ratio of a seed.".into(),
        key: GOALS.iter().map(|goal| goal.name.to_owned()).collect(),
        charts: overview(&rows, &groups, &others)?,
        table: Some(ratios(&rows, &groups, &others)),
    }];
    for group in &groups {
        let names: Vec<&str> = systems.iter().map(|(name, _)| name.as_str()).collect();
        let cells: Vec<(&str, &str, f64)> = names.iter().map(|name| (*group, *name, 0.0)).collect();
        sections.push(Section {
            title: (*group).to_owned(),
            table: Some(explain::table(&rows, &cells)),
            ..Section::default()
        });
    }
    Ok(Document {
        name: "default",
        title: "The default policy against every other one and the oracle".into(),
        about: vec![format!(
            "{} workloads, {} seeds from {} on (the constants of isotherm were chosen on 1 to 3), {} systems. The oracle sees every engine's true cache, queue and batch, and sends each request at once to where its first token comes \
             soonest; it does not look ahead, so it is a yardstick and not a bound.",
            groups.len(),
            lab.seeds(SEEDS).len(),
            lab.first_seed(),
            systems.len()
        )],
        paper: Vec::new(),
        findings: findings(&rows, &groups, &others),
        sections,
        rows,
    })
}

/// Every system, with its name: the policy, and how it pushes where that is not the default.
fn systems() -> Vec<(String, Balancing)> {
    let mut systems = vec![(
        OURS.to_owned(),
        shipped(PolicyName::Isotherm, Push::Pending),
    )];
    for policy in PolicyName::ALL {
        if policy != PolicyName::Isotherm {
            systems.push((policy.to_string(), shipped(policy, Push::Pending)));
            systems.push((format!("{policy} / blind"), shipped(policy, Push::Blind)));
        }
    }
    systems.push((ORACLE.to_owned(), Balancing::Oracle));
    systems
}

/// As the service ships it, but for the policy and the rule: a request that waits too long is refused, and counts as failed.
fn shipped(policy: PolicyName, push: Push) -> Balancing {
    Balancing::Router(RouterConfig {
        policy,
        push,
        ..RouterConfig::default()
    })
}

fn cases(lab: &Lab, standards: &[Standard], systems: &[(String, Balancing)]) -> Vec<Case> {
    let quick = lab.effort().quick;
    let mut cases = Vec::new();
    for standard in standards {
        let drawn = standard.clone();
        let draw: super::lab::Draw = std::sync::Arc::new(move |seed| {
            let mut workload = drawn.workload(seed);
            if quick {
                shorten(&mut workload);
            }
            workload
        });
        for (name, balancing) in systems {
            cases.push(Case {
                group: standard.name.to_owned(),
                system: name.clone(),
                x: 0.0,
                setup: standard.setup(0, balancing.clone()),
                draw: draw.clone(),
            });
        }
    }
    cases
}

/// A tenth of it, for a quick look.
fn shorten(workload: &mut Workload) {
    workload.warmup_requests /= 10;
    match &mut workload.sends_until {
        Some(until) => *until /= 10,
        None => workload.sessions.truncate(workload.sessions.len() / 10),
    }
}

fn verdict(rows: &Rows, group: &str, goal: &Goal, against: &str) -> Verdict {
    let seeds = rows.of(group, OURS, 0.0).map(|row| {
        let same = rows
            .of(group, against, 0.0)
            .find(|other| other.seed == row.seed);
        same.map_or(f64::NAN, |other| {
            goal.ratio((goal.figure)(row), (goal.figure)(other))
        })
    });
    Verdict {
        against: against.to_owned(),
        ratio: goal.ratio(
            goal.mean(rows, group, OURS),
            goal.mean(rows, group, against),
        ),
        spread: Stat::of(seeds),
    }
}

fn verdicts(rows: &Rows, group: &str, others: &[String]) -> Vec<Verdict> {
    GOALS
        .iter()
        .filter_map(|goal| Some(verdict(rows, group, goal, goal.best(rows, group, others)?)))
        .collect()
}

/// Groups of bars that fit a chart.
const GROUPS_EACH: usize = 4;

fn overview(rows: &Rows, groups: &[&str], others: &[String]) -> anyhow::Result<Vec<Chart>> {
    groups
        .chunks(GROUPS_EACH)
        .map(|some| {
            let group = |name: &&str| Group {
                name: (*name).to_owned(),
                bars: verdicts(rows, name, others)
                    .iter()
                    .map(|verdict| Bar {
                        value: verdict.ratio,
                        spread: (verdict.spread.min < verdict.spread.max)
                            .then_some((verdict.spread.min, verdict.spread.max)),
                    })
                    .collect(),
            };
            let chart = Bars {
                groups: some.iter().map(group).collect(),
                size: (640, 300),
                mark: Some((1.0, "the best other".to_owned())),
            };
            Ok(Chart {
                title: some.join(", "),
                explanation: String::new(),
                svg: chart.svg(short)?,
            })
        })
        .collect()
}

fn ratios(rows: &Rows, groups: &[&str], others: &[String]) -> Table {
    let mut heads = vec!["workload".to_owned()];
    for goal in &GOALS {
        heads.push(format!("{}: over the best other", goal.name));
        heads.push("seed by seed".to_owned());
        heads.push("which is".to_owned());
        heads.push("over the oracle".to_owned());
    }
    let line = |group: &&str| {
        let mut line = vec![(*group).to_owned()];
        for (goal, verdict) in GOALS.iter().zip(verdicts(rows, group, others)) {
            let oracle = goal.ratio(goal.mean(rows, group, OURS), goal.mean(rows, group, ORACLE));
            line.push(times(verdict.ratio));
            line.push(format!(
                "{} to {}",
                short(verdict.spread.min),
                short(verdict.spread.max)
            ));
            line.push(verdict.against);
            line.push(times(oracle));
        }
        line
    };
    Table {
        heads,
        lines: groups.iter().map(line).collect(),
    }
}

fn findings(rows: &Rows, groups: &[&str], others: &[String]) -> Vec<Finding> {
    let all: Vec<(&str, Vec<Verdict>)> = groups
        .iter()
        .map(|group| (*group, verdicts(rows, group, others)))
        .collect();
    let mut behind = Vec::new();
    for (group, verdicts) in &all {
        for (goal, verdict) in GOALS.iter().zip(verdicts) {
            if verdict.ratio < RATIO_MIN || verdict.ratio.is_nan() {
                behind.push(format!(
                    "{group}, {}: {} of {}",
                    goal.name,
                    times(verdict.ratio),
                    verdict.against
                ));
            }
        }
    }
    let held = all.len() * GOALS.len() - behind.len();
    // Better on some figure, and on none below this.
    let better_and = |least: f64| -> Vec<&str> {
        all.iter()
            .filter(|(_, verdicts)| {
                verdicts.iter().all(|verdict| verdict.ratio >= least)
                    && verdicts.iter().any(|verdict| verdict.ratio > BETTER)
            })
            .map(|(group, _)| *group)
            .collect()
    };
    let better = better_and(NOT_BEHIND);
    let nearly = better_and(RATIO_MIN);
    let on_all: Vec<&str> = all
        .iter()
        .filter(|(_, verdicts)| verdicts.iter().all(|verdict| verdict.ratio > BETTER))
        .map(|(group, _)| *group)
        .collect();
    let mut findings = vec![
        Finding::claim(
            format!(
                "isotherm has at least {RATIO_MIN} of the best other system on every workload and every figure: {held} of {}.{}",
                all.len() * GOALS.len(),
                if behind.is_empty() {
                    String::new()
                } else {
                    format!(" Not: {}.", behind.join("; "))
                }
            ),
            behind.is_empty(),
        ),
        Finding::claim(
            format!(
                "On at least half of the workloads it is strictly better than every other policy on some figure and behind on none: {} of {} ({}).",
                better.len(),
                all.len(),
                better.join(", ")
            ),
            better.len() * 2 >= all.len(),
        ),
        Finding::note(format!(
            "Strictly better on some figure, and at least {RATIO_MIN} on the others: {} of {} ({}).",
            nearly.len(),
            all.len(),
            nearly.join(", ")
        )),
        Finding::note(format!(
            "Strictly better on all three figures at once: {} of {} ({}).",
            on_all.len(),
            all.len(),
            on_all.join(", ")
        )),
    ];
    for (group, verdicts) in &all {
        let said: Vec<String> = GOALS
            .iter()
            .zip(verdicts)
            .map(|(goal, verdict)| {
                format!(
                    "{} {} that of {} (seeds {} to {})",
                    goal.name,
                    times(verdict.ratio),
                    verdict.against,
                    short(verdict.spread.min),
                    short(verdict.spread.max)
                )
            })
            .collect();
        let oracle = GOALS
            .iter()
            .map(|goal| {
                times(goal.ratio(goal.mean(rows, group, OURS), goal.mean(rows, group, ORACLE)))
            })
            .collect::<Vec<_>>()
            .join(", ");
        let hits =
            |system: &str| percent(rows.mean(group, system, 0.0, |row| row.summary.hit_ratio));
        findings.push(Finding::note(format!(
            "{group}: {}. Against the oracle: {oracle}. Cache hits {}, the oracle's {}.",
            said.join("; "),
            hits(OURS),
            hits(ORACLE)
        )));
    }
    findings
}
