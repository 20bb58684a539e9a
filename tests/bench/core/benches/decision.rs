//! Times a decision (lookup, selection, fallbacks, insertion) over indexes and pools of all sizes, and by prompt length:
//! `cargo xtask bench core`.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a bench: criterion's macros make undocumented items, and it reads the clock"
)]

use core::hint::black_box;
use core::time::Duration;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use isotherm_bench_core::body::{chat, extract, wanted};
use isotherm_bench_core::load::{Kind, Load, config};
use isotherm_policies::PolicyName;
use isotherm_router::{Effect, End, Request};

/// The service's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A load that is created for the first selected bench: the largest takes a minute.
struct Later<'a> {
    make: &'a dyn Fn() -> Load,
    made: Option<Load>,
}

impl<'a> Later<'a> {
    fn new(make: &'a dyn Fn() -> Load) -> Self {
        Self { make, made: None }
    }

    fn get(&mut self) -> &mut Load {
        self.made.get_or_insert_with(self.make)
    }
}

/// Times each decision alone, without the end of an old request and the creation of the `next` one, and reports the median:
/// other work on the machine affects the mean.
fn measure(
    c: &mut Criterion,
    group: &str,
    name: &str,
    load: &mut Later<'_>,
    end: End,
    mut next: impl FnMut(&mut Load) -> Request,
) {
    c.benchmark_group(group)
        .bench_function(BenchmarkId::from_parameter(name), |b| {
            let load = load.get();
            b.iter_custom(|iterations| {
                median(iterations, || {
                    load.settle(end);
                    let request = next(load);
                    let start = Instant::now();
                    black_box(load.decide(request));
                    start.elapsed()
                })
            });
        });
}

/// Time of `iterations` runs if each took the median time.
fn median(iterations: u64, mut one: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..iterations).map(|_| one()).collect();
    times.sort_unstable();
    times[times.len() / 2] * u32::try_from(iterations).unwrap()
}

fn decisions(c: &mut Criterion) {
    let kinds = [("turn", Kind::Turn), ("new", Kind::New)];
    let by_nodes = [10_000, 100_000, 10_000_000].map(|nodes| (nodes, 1_000));
    let by_replicas = [10, 100, 1_000, 5_000].map(|replicas| (1_000_000, replicas));
    for (nodes, replicas) in by_nodes.into_iter().chain(by_replicas) {
        for policy in [PolicyName::Isotherm, PolicyName::PrefixTree] {
            let make = || Load::new(config(policy, 2 << 30), replicas, nodes);
            let mut load = Later::new(&make);
            let name = format!("{policy}, {nodes} nodes, {replicas} replicas");
            for (group, kind) in kinds {
                let next = |load: &mut Load| load.passing_request(kind);
                measure(c, group, &name, &mut load, End::Refused, next);
            }
        }
    }
}

/// At its bound each insertion also evicts.
fn evictions(c: &mut Criterion) {
    let make = || Load::new(config(PolicyName::Isotherm, 64 << 20), 1_000, usize::MAX);
    let mut load = Later::new(&make);
    let group = "evicting, 64 MB, 1000 replicas";
    for (name, kind) in [("turn", Kind::Turn), ("new", Kind::New)] {
        measure(c, group, name, &mut load, End::Answered, |load| {
            load.request(kind)
        });
    }
}

/// A prompt that is known to its end, from 4 KB to 10 MB, among 10^6 nodes: looked up, and nothing inserted.
fn lengths(c: &mut Criterion) {
    let make = || Load::new(config(PolicyName::PrefixTree, 1 << 30), 1_000, 1_000_000);
    let mut load = Later::new(&make);
    for kilobytes in [4, 16, 64, 256, 1_024, 4_096, 10_240] {
        let prompt = extract(&chat(kilobytes << 10), &wanted()).fingerprint;
        let tokens = u32::try_from(kilobytes << 8).unwrap();
        let name = format!("{kilobytes} KB, {} blocks", prompt.blocks().len());
        measure(c, "known prompt", &name, &mut load, End::Answered, |load| {
            load.asks(u64::MAX, prompt.clone(), tokens)
        });
    }
}

fn policies(c: &mut Criterion) {
    for &policy in PolicyName::ALL {
        let make = || Load::new(config(policy, 1 << 30), 1_000, 100_000);
        let mut load = Later::new(&make);
        let next = |load: &mut Load| load.passing_request(Kind::Mixed);
        measure(c, "policy", policy.as_ref(), &mut load, End::Refused, next);
    }
}

/// A pool that is full among fifty regions that have room; and what their heartbeats cost it.
fn regions(c: &mut Criterion) {
    for policy in [PolicyName::Isotherm, PolicyName::ConsistentHash] {
        let make = || Load::full(policy, 100, 50, 100_000);
        let name = format!("{policy}, 50 peers");
        let mut load = Later::new(&make);
        let next = |load: &mut Load| load.passing_request(Kind::Mixed);
        measure(c, "forward", &name, &mut load, End::Refused, next);
    }
    c.bench_function("forward/heartbeat of one of 50 peers", |b| {
        let mut load = Load::full(PolicyName::Isotherm, 100, 50, 100_000);
        let mut turn = 0;
        b.iter(|| {
            turn = (turn + 1) % 50;
            load.pass(1_000);
            load.heartbeat(turn);
        });
    });
}

/// A full pool, and many that wait: one finishes and its replica takes one of them, one more comes and waits.
fn queue(c: &mut Criterion) {
    for (policy, replicas, waiting) in [
        (PolicyName::PrefixTree, 100, 100_000),
        (PolicyName::Isotherm, 100, 100_000),
        (PolicyName::Isotherm, 1_000, 1_000),
    ] {
        let name = format!("{policy}, {replicas} replicas, {waiting} wait");
        let make = || Load::waiting(policy, replicas, waiting);
        queue_of(c, &name, &mut Later::new(&make));
    }
}

/// Times both events of a full queue.
fn queue_of(c: &mut Criterion, name: &str, load: &mut Later<'_>) {
    for (group, timed) in [("dispatch", true), ("wait", false)] {
        c.benchmark_group(group)
            .bench_function(BenchmarkId::from_parameter(name), |b| {
                let load = load.get();
                b.iter_custom(|iterations| {
                    median(iterations, || {
                        let request = load.request(Kind::Mixed);
                        let start = Instant::now();
                        load.finish(End::Answered);
                        let finished = start.elapsed();
                        let effect = black_box(load.decide(request));
                        assert!(!matches!(effect, Some(Effect::Reject { .. })));
                        if timed {
                            finished
                        } else {
                            start.elapsed() - finished
                        }
                    })
                });
            });
    }
}

/// 100,000 waiting requests of 10,000 tenants in tiers: one finishes and its replica takes one of them, one more comes and waits.
fn tenants(c: &mut Criterion) {
    for policy in [PolicyName::Isotherm, PolicyName::PrefixTree] {
        let make = || Load::waiting_in_tiers(policy, 100, 100_000, 10_000);
        let name = format!("{policy}, 100000 wait, 10000 tenants");
        queue_of(c, &name, &mut Later::new(&make));
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = decisions, evictions, lengths, policies, regions, queue, tenants
}
criterion_main!(benches);
