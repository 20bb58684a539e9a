//! What is run: the figure itself, and the same while something else is turned.

use core::time::Duration;

use isotherm_engine::model::presets::Preset;
use isotherm_router::{PolicyName, Push};

use super::super::lab::{Case, Draw, Lab, config};
use super::super::rows::Rows;
use super::super::workloads::{self, LongTrees};
use super::{
    BLIND, CHATS, CLIENTS, LENGTH, LIMITED, PENDING, POLICIES, REPLICAS, SGLANG, SYSTEMS,
    THOUGHT_TOKENS,
};
use crate::{Balancing, Setup};

const SEEDS: u64 = 5;
const FEWER_SEEDS: u64 = 3;
const THOUGHTS: [f64; 5] = [100.0, 150.0, 200.0, 250.0, 300.0];
const LENGTHS_S: [f64; 4] = [60.0, 120.0, 240.0, 480.0];
fn case(
    (group, policy): (&str, PolicyName),
    system: &str,
    x: f64,
    push: Push,
    draw: &Draw,
) -> Case {
    let balancing = Balancing::Router(config(policy, push));
    Case {
        group: group.to_owned(),
        system: system.to_owned(),
        x,
        setup: Setup::one_region(Preset::Llama31_8bL4.config(), REPLICAS, balancing),
        draw: draw.clone(),
    }
}

fn grown(lab: &Lab, thought_tokens: f64, duration: Duration) -> Draw {
    let long = LongTrees {
        clients: CLIENTS,
        thought_tokens,
        duration,
    };
    workloads::long_trees(lab.effort(), long)
}

/// The figure itself.
pub(super) fn trees(lab: &Lab, chosen: u32) -> Rows {
    let draw = grown(lab, THOUGHT_TOKENS, LENGTH);
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
        .map(|(policy, system, push)| case(policy, system, 0.0, push, &draw))
        .collect();
    lab.run(SEEDS, &cases)
}

/// SP-O with each limit, on the same trees.
pub(super) fn over_limits(lab: &Lab, limits: &[u32]) -> Rows {
    let draw = grown(lab, THOUGHT_TOKENS, LENGTH);
    let cases: Vec<Case> = limits
        .iter()
        .map(|&max| {
            case(
                SGLANG,
                LIMITED,
                f64::from(max),
                Push::Outstanding { max },
                &draw,
            )
        })
        .collect();
    lab.run(FEWER_SEEDS, &cases)
}

/// SP-O with each limit, on conversations.
pub(super) fn chats(lab: &Lab, limits: &[u32]) -> Rows {
    let mut cases = Vec::new();
    for (name, clients) in CHATS {
        let draw = if name.starts_with("WildChat") {
            workloads::wildchat(lab.effort(), &[clients])
        } else {
            workloads::arena(lab.effort(), &[clients])
        };
        for &max in limits {
            let push = Push::Outstanding { max };
            cases.push(case((name, SGLANG.1), LIMITED, f64::from(max), push, &draw));
        }
    }
    lab.run(FEWER_SEEDS, &cases)
}

/// BP and SP-P while something else is turned.
fn turned(lab: &Lab, points: &[(f64, Draw)]) -> Rows {
    let mut cases = Vec::new();
    for (x, draw) in points {
        for policy in POLICIES {
            cases.push(case(policy, BLIND, *x, Push::Blind, draw));
            cases.push(case(policy, PENDING, *x, Push::Pending, draw));
        }
    }
    lab.run(FEWER_SEEDS, &cases)
}

pub(super) fn over_thoughts(lab: &Lab) -> Rows {
    let points = lab.points(&THOUGHTS);
    let points = points
        .iter()
        .map(|&median| (median, grown(lab, median, LENGTH)));
    turned(lab, &points.collect::<Vec<_>>())
}

pub(super) fn over_lengths(lab: &Lab) -> Rows {
    let points = lab.points(&LENGTHS_S);
    let points = points.iter().map(|&length| {
        (
            length,
            grown(lab, THOUGHT_TOKENS, Duration::from_secs_f64(length)),
        )
    });
    turned(lab, &points.collect::<Vec<_>>())
}
