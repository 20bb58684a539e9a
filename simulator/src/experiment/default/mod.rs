//! The default policy, `isotherm`, on every standard workload, beside every other policy and the oracle.
//!
//! Three figures decide: throughput, requests within the SLO (effective capacity), p90 time to first token. On each workload
//! and for each figure `isotherm` is held against the *best* other system of that figure, so on one workload it may face
//! three different ones. Each other policy runs with blind pushing and with the shipped rule (pending requests); whichever is
//! better counts. Everything else is as shipped. A ratio above 1 is better, also for times (theirs over ours).
//!
//! The constants of the policy were chosen on seeds 1 to 10, so other ones judge it: unless told otherwise, those from 201 on.
//!
//! A ratio is of means over the seeds; its spread is of the ratios seed by seed, on the same workload. Two systems are told apart
//! where the 95 % interval of their differences, seed by seed (Student's t, paired), leaves out zero, and by 0.05 % at least
//! (0.5 % to be called better); `isotherm` has to be better than each other one, and behind none, not only against the best.
//! These are 39 figures: one or so is sure by chance.
//!
//! The conversations are those of the synthetic twin of Mooncake's trace, also with `--trace`: each seed needs traffic of its own.

mod found;
mod picture;
mod verdict;

use isotherm_router::{PolicyName, Push, RouterConfig};

use self::found::findings;
use self::picture::{overview, ratios};
use self::verdict::GOALS;
use super::document::{Document, Section};
use super::explain;
use super::lab::{Case, Effort, Lab};
use crate::Balancing;
use crate::workload::Workload;
use crate::workload::standard::{Standard, standard};

const SEEDS: u64 = 15;
const OURS: &str = "isotherm";
const ORACLE: &str = "oracle";
/// Not among the seeds on which the constants were chosen.
const FIRST_SEED: u64 = 201;

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
            "{} workloads, {} seeds from {} on (the constants of isotherm were chosen on 1 to 10), {} systems. The oracle sees every engine's true cache, queue and batch, and sends each request at once to where its first token comes \
             soonest; it does not look ahead, so it is a yardstick and not a bound. Conversations are synthetic here, also with a trace: each seed needs its own.",
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
