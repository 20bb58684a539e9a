//! `isotherm-bench-unit NAME`: gets one unit of work ready and runs it once more, inside [`counted`], for a tool that
//! counts instructions in there. Without a name it prints the names.
//!
//! `isotherm-bench-unit queue-memory`: lets 100,000 requests of 10,000 tenants wait, and prints what that takes, in memory and for
//! each event.
//!
//! `isotherm-bench-unit memory NODES`: fills an index with so many nodes in a process of its own, and says what that took.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use isotherm_bench_core::Work;
use isotherm_bench_core::load::{Kind, Load, config};
use isotherm_bench_core::units::{UNITS, Unit};
use isotherm_policies::PolicyName;
use isotherm_router::End;

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        for unit in UNITS {
            println!("{}", unit.name);
        }
        return ExitCode::SUCCESS;
    };
    if name == "memory" {
        let nodes = std::env::args().nth(2).and_then(|nodes| nodes.parse().ok());
        return tell_memory(nodes.unwrap_or(1_000_000));
    }
    if name == "queue-memory" {
        return tell_queue_memory();
    }
    let Some(unit) = Unit::named(&name) else {
        eprintln!("error: no unit `{name}`");
        return ExitCode::FAILURE;
    };
    counted(unit.ready());
    ExitCode::SUCCESS
}

/// A function of its own, so that a tool finds its beginning and its end.
#[inline(never)]
fn counted(mut work: Work) {
    work();
}

/// Prints the accounted memory of the index, and the growth of the process.
#[expect(clippy::cast_precision_loss, reason = "bytes, for people")]
fn tell_memory(nodes: usize) -> ExitCode {
    let before = resident_bytes();
    let load = Load::new(config(PolicyName::Isotherm, 4 << 30), 1_000, nodes);
    let grown = resident_bytes().zip(before);
    let Some((now, before)) = grown else {
        eprintln!("error: /proc/self/status does not say how much memory this process has");
        return ExitCode::FAILURE;
    };
    let index = load.stats().index;
    let per_node = |bytes: u64| bytes as f64 / index.nodes as f64;
    println!(
        "{} nodes, {} targets of them: {:.1} bytes a node by its own account, {:.1} resident",
        index.nodes,
        index.entries,
        per_node(index.bytes as u64),
        per_node(now.saturating_sub(before)),
    );
    ExitCode::SUCCESS
}

/// Events that are timed while so many requests wait.
const EVENTS: usize = 2_000;
/// Repetitions of the same events, of which the shortest time of each counts: the rest is other work on the machine.
const RUNS: usize = 3;

/// Prints the growth of the process by waiting requests, and the times of the events that follow.
fn tell_queue_memory() -> ExitCode {
    const WAITING: usize = 100_000;
    const TENANTS: u64 = 10_000;
    let before = resident_bytes();
    let load = Load::waiting_in_tiers(PolicyName::Isotherm, 100, WAITING, TENANTS);
    let Some((now, before)) = resident_bytes().zip(before) else {
        eprintln!("error: /proc/self/status does not say how much memory this process has");
        return ExitCode::FAILURE;
    };
    let megabytes = now.saturating_sub(before) >> 20;
    println!(
        "{WAITING} waiting requests of {TENANTS} tenants: {megabytes} MB resident, prompts included"
    );
    drop(load);
    for policy in [PolicyName::Isotherm, PolicyName::PrefixTree] {
        let common = || Load::waiting(policy, 100, WAITING);
        tell_event_times(&format!("{policy}, one tier"), &common);
        let tiers = || Load::waiting_in_tiers(policy, 100, WAITING, TENANTS);
        tell_event_times(&format!("{policy}, tiers and tenants"), &tiers);
    }
    ExitCode::SUCCESS
}

/// Prints the times of the end of a request, after which another one starts, and of an arrival that waits.
fn tell_event_times(name: &str, prepare: &dyn Fn() -> Load) {
    let mut shortest = vec![[Duration::MAX; 2]; EVENTS];
    for _ in 0..RUNS {
        let mut load = prepare();
        for known in &mut shortest {
            let request = load.request(Kind::Mixed);
            let start = Instant::now();
            load.finish(End::Answered);
            let finished = start.elapsed();
            let start = Instant::now();
            load.decide(request);
            let times = [finished, start.elapsed()];
            *known = [0, 1].map(|event: usize| {
                let of = |times: &[Duration; 2]| times.get(event).copied().unwrap_or_default();
                of(known).min(of(&times))
            });
        }
    }
    for (event, label) in ["an end", "an arrival"].into_iter().enumerate() {
        let times = shortest
            .iter()
            .filter_map(|times| times.get(event).copied());
        let mut times: Vec<Duration> = times.collect();
        times.sort_unstable();
        let at = |percent: usize| times.get((times.len() - 1) * percent / 100).copied();
        let [median, p99, longest] = [50, 99, 100].map(|percent| at(percent).unwrap_or_default());
        println!("{name}, {label}: median {median:?}, p99 {p99:?}, longest {longest:?}");
    }
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
