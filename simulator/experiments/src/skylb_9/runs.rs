//! The runs: the figure itself, and variations of a single parameter.

use core::time::Duration;

use isotherm_engine::model::presets::Preset;
use isotherm_router::{PolicyName, Push};

use super::{
    BLIND, CHATS, CLIENTS, LENGTH, LIMITED, PENDING, POLICIES, REPLICAS, SGLANG, SYSTEMS,
    THOUGHT_TOKENS,
};
use crate::context::{Case, Context, WorkloadSource, config};
use crate::rows::Rows;
use crate::workloads::{self, LongTrees};
use isotherm_simulator::{Arrangement, Setup};

const SEEDS: u64 = 5;
const FEWER_SEEDS: u64 = 3;
const THOUGHTS: [f64; 5] = [100.0, 150.0, 200.0, 250.0, 300.0];
const LENGTHS_S: [f64; 4] = [60.0, 120.0, 240.0, 480.0];
fn case(
    (group, policy): (&str, PolicyName),
    system: &str,
    x: f64,
    push: Push,
    source: &WorkloadSource,
) -> Case {
    let arrangement = Arrangement::Router(config(policy, push));
    let setup = Setup::one_region(Preset::Llama31_8bL4.config(), REPLICAS, arrangement);
    Case::new(group, system, x, setup, source)
}

fn grown(context: &Context, thought_tokens: f64, duration: Duration) -> WorkloadSource {
    let long = LongTrees {
        clients: CLIENTS,
        thought_tokens,
        duration,
    };
    workloads::long_trees(context.effort(), long)
}

/// The figure itself.
pub(crate) fn trees(context: &Context, chosen: u32) -> Rows {
    let source = grown(context, THOUGHT_TOKENS, LENGTH);
    let pushes = [
        Push::Blind,
        Push::Outstanding { max: chosen },
        Push::Pending,
    ];
    let cases: Vec<Case> = POLICIES
        .into_iter()
        .flat_map(|policy| {
            SYSTEMS
                .into_iter()
                .zip(pushes)
                .map(move |(system, push)| (policy, system, push))
        })
        .map(|(policy, system, push)| case(policy, system, 0.0, push, &source))
        .collect();
    context.run(SEEDS, &cases)
}

/// SP-O with each limit, on the same trees.
pub(crate) fn over_limits(context: &Context, limits: &[u32]) -> Rows {
    let source = grown(context, THOUGHT_TOKENS, LENGTH);
    let cases: Vec<Case> = limits
        .iter()
        .map(|&max| {
            case(
                SGLANG,
                LIMITED,
                f64::from(max),
                Push::Outstanding { max },
                &source,
            )
        })
        .collect();
    context.run(FEWER_SEEDS, &cases)
}

/// SP-O with each limit, on conversations.
pub(crate) fn chats(context: &Context, limits: &[u32]) -> Rows {
    let mut cases = Vec::new();
    for (name, clients) in CHATS {
        let source = if name.starts_with("WildChat") {
            workloads::wildchat(context.effort(), &[clients])
        } else {
            workloads::arena(context.effort(), &[clients])
        };
        for &max in limits {
            let push = Push::Outstanding { max };
            cases.push(case(
                (name, SGLANG.1),
                LIMITED,
                f64::from(max),
                push,
                &source,
            ));
        }
    }
    context.run(FEWER_SEEDS, &cases)
}

/// BP and SP-P while a parameter varies.
fn vary(context: &Context, points: &[(f64, WorkloadSource)]) -> Rows {
    let mut cases = Vec::new();
    for (x, source) in points {
        for policy in POLICIES {
            cases.push(case(policy, BLIND, *x, Push::Blind, source));
            cases.push(case(policy, PENDING, *x, Push::Pending, source));
        }
    }
    context.run(FEWER_SEEDS, &cases)
}

pub(crate) fn over_thoughts(context: &Context) -> Rows {
    let points = context.points(&THOUGHTS);
    let points = points
        .iter()
        .map(|&median| (median, grown(context, median, LENGTH)));
    vary(context, &points.collect::<Vec<_>>())
}

pub(crate) fn over_lengths(context: &Context) -> Rows {
    let points = context.points(&LENGTHS_S);
    let points = points.iter().map(|&length| {
        (
            length,
            grown(context, THOUGHT_TOKENS, Duration::from_secs_f64(length)),
        )
    });
    vary(context, &points.collect::<Vec<_>>())
}
