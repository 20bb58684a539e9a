//! What a decision costs: the lookup, the choice, the fallbacks and the insertion, over indexes and fleets of all sizes;
//! what a node of the index costs in memory; what the length of a prompt costs. `cargo xtask bench core`.
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
use isotherm_router::{Effect, PolicyName, Request};

/// Times each decision by itself and reports the median: a machine with other work adds to the mean what no
/// decision costs.
fn measure(
    c: &mut Criterion,
    group: &str,
    name: &str,
    load: &mut Load,
    mut next: impl FnMut(&mut Load) -> Request,
) {
    c.benchmark_group(group)
        .bench_function(BenchmarkId::from_parameter(name), |b| {
            b.iter_custom(|iterations| {
                let mut times = Vec::new();
                for _ in 0..iterations {
                    load.settle();
                    let request = next(load);
                    let start = Instant::now();
                    black_box(load.decide(request));
                    times.push(start.elapsed());
                }
                times.sort_unstable();
                times[times.len() / 2] * u32::try_from(iterations).unwrap()
            });
        });
}

fn decisions(c: &mut Criterion) {
    for nodes in [10_000, 100_000, 1_000_000, 10_000_000] {
        let before = resident_bytes();
        for replicas in [10, 100, 1_000, 5_000] {
            let mut load = Load::new(config(PolicyName::PrefixTree, 2 << 30), replicas, nodes);
            if replicas == 10 {
                tell_memory(&load, before);
            }
            let name = format!("{nodes} nodes, {replicas} replicas");
            for (group, kind) in [("turn", Kind::Turn), ("new", Kind::New)] {
                measure(c, group, &name, &mut load, |load| load.request(kind));
            }
        }
    }
}

/// At its bound each insertion also evicts.
fn evictions(c: &mut Criterion) {
    let config = config(PolicyName::PrefixTree, 64 << 20);
    let mut load = Load::new(config, 1_000, usize::MAX);
    for (name, kind) in [("turn", Kind::Turn), ("new", Kind::New)] {
        measure(
            c,
            "evicting, 64 MB, 1000 replicas",
            name,
            &mut load,
            |load| load.request(kind),
        );
    }
}

/// A prompt that is known to its end, from 4 KB to 10 MB, among 10^6 nodes: looked up, and nothing inserted.
fn lengths(c: &mut Criterion) {
    let mut load = Load::new(config(PolicyName::PrefixTree, 1 << 30), 1_000, 1_000_000);
    for kilobytes in [4, 16, 64, 256, 1_024, 4_096, 10_240] {
        let prompt = extract(&chat(kilobytes << 10), &wanted()).fingerprint;
        let tokens = u32::try_from(kilobytes << 8).unwrap();
        let name = format!("{kilobytes} KB, {} edges", prompt.edges().len());
        measure(c, "known prompt", &name, &mut load, |load| {
            load.asks(u64::MAX, prompt.clone(), tokens)
        });
    }
}

fn policies(c: &mut Criterion) {
    for policy in PolicyName::ALL {
        let mut load = Load::new(config(policy, 1 << 30), 1_000, 100_000);
        measure(c, "policy", policy.as_str(), &mut load, |load| {
            load.request(Kind::Mixed)
        });
    }
}

/// A pool that is full among fifty regions that have room; and what their heartbeats cost it.
fn regions(c: &mut Criterion) {
    for policy in [PolicyName::PrefixTree, PolicyName::ConsistentHash] {
        let mut load = Load::full(policy, 100, 50, 100_000);
        let name = format!("{policy}, 50 peers");
        measure(c, "forward", &name, &mut load, |load| {
            load.request(Kind::Mixed)
        });
    }
    let mut load = Load::full(PolicyName::PrefixTree, 100, 50, 100_000);
    let mut turn = 0;
    c.bench_function("forward/heartbeat of one of 50 peers", |b| {
        b.iter(|| {
            turn = (turn + 1) % 50;
            load.pass(1_000);
            load.heartbeat(turn);
        });
    });
}

/// With a hundred thousand waiting: one finishes and the oldest goes, one more comes and waits.
fn queue(c: &mut Criterion) {
    let mut load = Load::waiting(100_000);
    c.bench_function("queue/finish, dispatch and arrive at 100000", |b| {
        b.iter_custom(|iterations| {
            let mut spent = Duration::ZERO;
            for _ in 0..iterations {
                let request = load.request(Kind::Mixed);
                let start = Instant::now();
                load.finish();
                let effect = black_box(load.decide(request));
                spent += start.elapsed();
                assert!(!matches!(effect, Some(Effect::Reject { .. })));
            }
            spent
        });
    });
}

/// What the index says that it has, and what the process has grown by.
fn tell_memory(load: &Load, before: Option<u64>) {
    let index = load.stats().index;
    let grown = resident_bytes().zip(before).map_or_else(
        || "unknown".to_owned(),
        |(now, before)| {
            let bytes = now.saturating_sub(before);
            format!("{:.1}", bytes as f64 / index.nodes as f64)
        },
    );
    println!(
        "memory: {} nodes, {} entries; bytes per node: {:.1} counted, {grown} resident",
        index.nodes,
        index.entries,
        index.bytes as f64 / index.nodes as f64,
    );
}

/// Resident memory of this process, on Linux.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kibibytes * 1_024)
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(50)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = decisions, evictions, lengths, policies, regions, queue
}
criterion_main!(benches);
