//! The default policy, `isotherm`, on every standard workload, beside every other policy and the oracle.
//!
//! Three figures decide: throughput, requests within the SLO (effective capacity), p90 time to first token. On each workload
//! and for each figure `isotherm` faces the *best* other system of that figure. Each other policy runs with blind pushing and
//! with the shipped push mode (pending requests); the better of the two counts. A ratio above 1 is better, also for times.
//! A refused request counts as an infinite time. A second table has the goodput at fixed objectives, whatever the policy's is.
//!
//! The constants of the policy were chosen on seeds 1 to 10; unless told otherwise, seeds from 201 on judge it.
//!
//! A ratio is of means over the seeds; its spread is of the ratios seed by seed, on the same workload. Two systems differ where
//! the 95 % interval of their differences, seed by seed (Student's t, paired), leaves out zero, and by 0.05 % at least (0.5 %
//! to be called better). `isotherm` has to be better than each other system, not only than the best. With 39 figures about one
//! is certain by chance alone.
//!
//! The conversations are those of the synthetic twin of Mooncake's trace, also with `--trace`: each seed needs traffic of its own.

mod conclusions;
pub(crate) mod ranking;
mod tables;

use std::sync::Arc;

use isotherm_policies::PolicyName;
use isotherm_report::Section;
use isotherm_router::{Push, RouterConfig};
use isotherm_simulator::Arrangement;
use isotherm_simulator::workload::Workload;
use isotherm_simulator::workload::standard::{Standard, standard};

use self::conclusions::conclusions;
use self::tables::{ratios, yardstick};
use crate::context::{Case, Context, Effort, WorkloadSource, grid};
use crate::document::Document;
use crate::explain;

const SEEDS: u64 = 15;
const OURS: &str = "isotherm";
const ORACLE: &str = "oracle";
/// First seed; the constants were chosen on seeds 1 to 10.
const FIRST_SEED: u64 = 201;

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let context = &Context::new(Effort {
        seed: Some(context.effort.seed.unwrap_or(FIRST_SEED)),
        ..context.effort.clone()
    });
    let standards = standard();
    let systems = systems();
    let cases = standards
        .iter()
        .flat_map(|standard| cases(context, standard, &systems));
    let rows = context.run(SEEDS, &cases.collect::<Vec<_>>());
    let others = systems.iter().map(|(name, _)| name.as_str());
    let others: Vec<&str> = others
        .filter(|name| ![OURS, ORACLE].contains(name))
        .collect();
    let groups: Vec<&str> = standards.iter().map(|standard| standard.name).collect();
    let overview = Section::detail("isotherm over the best other system of each figure")
        .text("Above 1: better than every other policy.")
        .table(ratios(&rows, &groups, &others));
    let yardstick = Section::detail("At fixed objectives")
        .text(
            "Requests a second whose first token came within 1, 2, 5 and 10 s, and percentiles in which a refused request is \
             infinite. Above 1: better than every other policy.",
        )
        .table(yardstick(&rows, &groups, &others));
    let systems_table = Section::detail("Every system").table(explain::table(&rows, ""));
    let sections = vec![overview, yardstick, systems_table];
    Document {
        about: vec![format!(
            "{} workloads, {} seeds from {} on (the constants of isotherm were chosen on 1 to 10), {} systems. The oracle sees every engine's true cache, queue and batch, and sends each request at once to where its first token comes \
             soonest; it does not look ahead, so it is a yardstick and not a bound. Conversations are synthetic here, also with a trace: each seed needs its own.",
            groups.len(),
            context.seeds(SEEDS).len(),
            context.first_seed(),
            systems.len()
        )],
        conclusions: conclusions(&rows, &groups, &others),
        sections,
        rows,
        ..Document::default()
    }
}

/// Every system, with its name: the policy, and how it pushes where that is not the default.
fn systems() -> Vec<(String, Arrangement)> {
    let mut systems = vec![(
        OURS.to_owned(),
        shipped(PolicyName::Isotherm, Push::Pending),
    )];
    for &policy in PolicyName::ALL {
        if policy != PolicyName::Isotherm {
            systems.push((policy.to_string(), shipped(policy, Push::Pending)));
            systems.push((format!("{policy} / blind"), shipped(policy, Push::Blind)));
        }
    }
    systems.push((ORACLE.to_owned(), Arrangement::Oracle));
    systems
}

/// As the service ships it, but for the policy and the rule: a request that waits too long is refused, and counts as failed.
fn shipped(policy: PolicyName, push: Push) -> Arrangement {
    Arrangement::Router(RouterConfig {
        policy: policy.into(),
        push,
        ..RouterConfig::default()
    })
}

fn cases(context: &Context, standard: &Standard, systems: &[(String, Arrangement)]) -> Vec<Case> {
    let (quick, drawn) = (context.effort.quick, standard.clone());
    let source: WorkloadSource = Arc::new(move |seed| {
        let mut workload = drawn.workload(seed);
        if quick {
            shorten(&mut workload);
        }
        workload
    });
    let case = |(name, arrangement): &(String, Arrangement)| {
        grid(standard.name, &[0.0], &[name], |_, _| {
            (standard.setup(0, arrangement.clone()), source.clone())
        })
    };
    systems.iter().flat_map(case).collect()
}

/// A tenth of it, for a quick look.
fn shorten(workload: &mut Workload) {
    workload.warmup_requests /= 10;
    match &mut workload.sends_until {
        Some(until) => *until /= 10,
        None => workload.sessions.truncate(workload.sessions.len() / 10),
    }
}
