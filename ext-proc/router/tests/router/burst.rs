//! Selective pushing under a burst: requests wait inside a busy engine for a bounded time while another one idles, and no engine is
//! left half empty for that.

use crate::support::engine::{SMALL_GPU, Shape};
use crate::support::pool::{Report, Task, run};
use crate::support::request;
use isotherm_policies::PolicyName;
use isotherm_router::{Push, QueueLimits, RouterConfig};

/// Twice the longest time that the requests in an engine's queue wait together: the speed of the engines is learned on the way.
const QUEUED_MAX_MS: u64 = 3_200;

/// Engines that differ in what makes pushing hard.
fn shapes() -> Vec<(&'static str, Shape)> {
    let mute = Shape {
        tells_all: false,
        ..SMALL_GPU
    };
    let slow_steps = Shape {
        step_ms: 150,
        tokens_per_ms: 40,
        ..SMALL_GPU
    };
    let quick = Shape {
        step_ms: 20,
        tokens_per_ms: 100,
        ..SMALL_GPU
    };
    vec![
        ("small", SMALL_GPU),
        ("mute", mute),
        ("slow steps", slow_steps),
        ("quick", quick),
    ]
}

fn config(policy: PolicyName, push: Push) -> RouterConfig {
    RouterConfig {
        policy: policy.into(),
        push,
        queue: QueueLimits {
            wait_max: core::time::Duration::from_secs(3_600),
            ..RouterConfig::default().queue
        },
        ..RouterConfig::default()
    }
}

/// A burst of requests that all start alike, with prompts and answers of mixed length.
fn burst(requests: u64) -> Vec<Task> {
    (0..requests)
        .map(|id| {
            let mut blocks: Vec<u64> = (0..6).collect();
            blocks.extend((0..id % 5).map(|i| 1_000 * id + i));
            Task {
                at_ms: 50 + id / 50,
                request: request(id, id % 7, &blocks),
                output: 20 + (id * 37 % 150) as u32,
            }
        })
        .collect()
}

/// A burst of long prompts in a few families, so that one step admits at most one of them.
fn long_prompts(requests: u64) -> Vec<Task> {
    (0..requests)
        .map(|id| {
            let mut blocks: Vec<u64> = (0..40).map(|i| 100 * (id % 3) + i).collect();
            blocks.extend((0..8 + id % 40).map(|i| 10_000 * (id + 1) + i));
            Task {
                at_ms: 50 + id * 7 % 1_000,
                request: request(id, id % 7, &blocks),
                output: 20 + (id * 37 % 150) as u32,
            }
        })
        .collect()
}

fn go(policy: PolicyName, push: Push, shape: Shape, replicas: usize, tasks: Vec<Task>) -> Report {
    run(config(policy, push), &vec![shape; replicas], tasks)
}

#[test]
fn with_pending_requests_wait_inside_a_busy_engine_while_another_idles_for_its_bound_at_most() {
    for (name, shape) in shapes() {
        // Other policies send a family of prompts to its holder, whatever waits there.
        let policy = PolicyName::Isotherm;
        let short = [8, 40, 300].map(burst);
        let long = [8, 40, 100].map(long_prompts);
        for tasks in short.into_iter().chain(long) {
            let requests = tasks.len();
            let report = go(policy, Push::Pending, shape, 4, tasks);
            assert!(
                report.held_up_ms <= QUEUED_MAX_MS,
                "{policy} on {name} with {requests}: {} ms",
                report.held_up_ms
            );
        }
    }
}

#[test]
fn with_blind_requests_wait_inside_busy_engines() {
    let report = go(
        PolicyName::PrefixTree,
        Push::Blind,
        SMALL_GPU,
        4,
        burst(300),
    );
    assert!(
        report.held_up_ms > QUEUED_MAX_MS,
        "{} ms",
        report.held_up_ms
    );
}

#[test]
fn caution_costs_little_throughput() {
    for (name, shape) in shapes() {
        for tasks in [burst(400), long_prompts(200)] {
            let requests = tasks.len();
            let run = |policy, push| go(policy, push, shape, 4, tasks.clone());
            let blind = run(PolicyName::LeastOutstanding, Push::Blind);
            for policy in [PolicyName::LeastOutstanding, PolicyName::PrefixTree] {
                let pending = run(policy, Push::Pending);
                assert_eq!(pending.finished, requests);
                let ratio = pending.ended_ms as f64 / blind.ended_ms as f64;
                println!("{name} {policy} {requests}: {ratio:.3}");
                assert!(
                    ratio < 1.15,
                    "{policy} on {name} takes {ratio} times as long"
                );
            }
        }
    }
}

#[test]
fn an_empty_replica_is_soon_full() {
    for (name, shape) in shapes() {
        let tasks = (0..60)
            .map(|id| Task {
                at_ms: 10,
                request: request(id, id, &[id, id]),
                output: 1_000,
            })
            .collect();
        let report = go(PolicyName::PrefixTree, Push::Pending, shape, 1, tasks);
        let full = report.running.iter().map(|(_, running)| *running).max();
        let nearly = full.unwrap() * 9 / 10;
        let (at, _) = report.running.iter().find(|(_, n)| *n >= nearly).unwrap();
        println!("{name}: {full:?}, nine tenths after {at} ms");
        assert!(full.unwrap() >= 30 && *at < 2_500, "{name}: {at} ms");
    }
}
