//! The runs: the figure itself, and variations of a single parameter.

use core::time::Duration;

use isotherm_engine::model::presets::Preset;
use isotherm_policies::PolicyName;
use isotherm_router::Push;

use super::{
    BLIND, CHATS, CLIENTS, LENGTH, LIMITED, PENDING, POLICIES, REPLICAS, SGLANG, SYSTEMS,
    THOUGHT_TOKENS,
};
use crate::context::{Case, Context, WorkloadSource, config, grid};
use crate::rows::Rows;
use crate::workloads;
use isotherm_simulator::{Arrangement, Setup};

const SEEDS: u64 = 5;
const FEWER_SEEDS: u64 = 3;
const THOUGHTS: [f64; 5] = [100.0, 150.0, 200.0, 250.0, 300.0];
const LENGTHS_S: [f64; 4] = [60.0, 120.0, 240.0, 480.0];

/// The cases of a group: every push mode, by its system, at every value of x.
fn cases(
    (group, policy): (&str, PolicyName),
    xs: &[f64],
    systems: &[&str],
    push: impl Fn(f64, &str) -> Push,
    source: &WorkloadSource,
) -> Vec<Case> {
    grid(group, xs, systems, |x, system| {
        let arrangement = Arrangement::Router(config(policy, push(x, system)));
        let engine = Preset::Llama31_8bL4.config();
        (
            Setup::one_region(engine, REPLICAS, arrangement),
            source.clone(),
        )
    })
}

fn grown(context: &Context, thought_tokens: f64, duration: Duration) -> WorkloadSource {
    workloads::long_trees(&context.effort, CLIENTS, thought_tokens, duration)
}

/// The push mode of a system; `limit` is that of SP-O.
fn push(system: &str, limit: u32) -> Push {
    match system {
        BLIND => Push::Blind,
        LIMITED => Push::Outstanding { max: limit },
        _ => Push::Pending,
    }
}

/// The figure itself.
pub(crate) fn trees(context: &Context, chosen: u32) -> Rows {
    let source = grown(context, THOUGHT_TOKENS, LENGTH);
    let push = |_, system: &str| push(system, chosen);
    let cases = POLICIES.map(|policy| cases(policy, &[0.0], &SYSTEMS, push, &source));
    context.run(SEEDS, &cases.concat())
}

/// The cases of SP-O with each limit.
fn limited(group: &str, limits: &[u32], source: &WorkloadSource) -> Vec<Case> {
    let xs: Vec<f64> = limits.iter().copied().map(f64::from).collect();
    cases(
        (group, SGLANG.1),
        &xs,
        &[LIMITED],
        |x, system| push(system, x as u32),
        source,
    )
}

/// SP-O with each limit, on the same trees.
pub(crate) fn over_limits(context: &Context, limits: &[u32]) -> Rows {
    let source = grown(context, THOUGHT_TOKENS, LENGTH);
    context.run(FEWER_SEEDS, &limited(SGLANG.0, limits, &source))
}

/// SP-O with each limit, on conversations.
pub(crate) fn chats(context: &Context, limits: &[u32]) -> Rows {
    let cases = CHATS.map(|(name, clients)| {
        let source = if name.starts_with("WildChat") {
            workloads::wildchat(&context.effort, &[clients])
        } else {
            workloads::arena(&context.effort, &[clients])
        };
        limited(name, limits, &source)
    });
    context.run(FEWER_SEEDS, &cases.concat())
}

/// BP and SP-P while a parameter of the trees varies.
fn vary(context: &Context, xs: &[f64], source: impl Fn(f64) -> WorkloadSource) -> Rows {
    let push = |_, system: &str| push(system, 0);
    let at = |x: f64| {
        let source = source(x);
        POLICIES.map(|policy| cases(policy, &[x], &[BLIND, PENDING], push, &source))
    };
    let all: Vec<Case> = context
        .points(xs)
        .into_iter()
        .flat_map(at)
        .flatten()
        .collect();
    context.run(FEWER_SEEDS, &all)
}

pub(crate) fn over_thoughts(context: &Context) -> Rows {
    vary(context, &THOUGHTS, |median| grown(context, median, LENGTH))
}

pub(crate) fn over_lengths(context: &Context) -> Rows {
    vary(context, &LENGTHS_S, |length| {
        grown(context, THOUGHT_TOKENS, Duration::from_secs_f64(length))
    })
}
