//! The longest step of each scenario in `isotherm_bench_core::worst`: `cargo xtask bench core worst`.
//!
//! A step is one call of the router. Each scenario runs several times, and the shortest time of a step counts: the work is the
//! same each time, and the rest is other work on the machine.
#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench: it reads the clock and prints a table"
)]

use core::time::Duration;
use std::time::Instant;

use isotherm_bench_core::Load;
use isotherm_bench_core::worst::{SCENARIOS, Scenario};
use isotherm_policies::PolicyName;

/// The service's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Repetitions of a scenario.
const RUNS: usize = 3;
/// The most calls that one input may cause at once.
const DUE_AT_ONCE_MAX: usize = 100_000;
const POLICIES: [PolicyName; 2] = [PolicyName::Isotherm, PolicyName::DualMap];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Without this argument, cargo only tests that the bench starts.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let filters: Vec<&String> = arguments.iter().filter(|a| !a.starts_with("--")).collect();
    println!(
        "| worst event, 1,000 replicas, 10,000 wait | policy | longest step, µs | number | steps |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for scenario in SCENARIOS {
        for policy in POLICIES {
            let name = format!("worst event, {}, {policy}", scenario.name);
            if filters.is_empty() || filters.iter().any(|filter| name.contains(*filter)) {
                report(&scenario, policy);
            }
        }
    }
}

fn report(scenario: &Scenario, policy: PolicyName) {
    let mut shortest: Vec<Duration> = Vec::new();
    for run in 0..RUNS {
        let times = run_once(scenario, policy);
        if run == 0 {
            shortest = times;
        } else {
            assert_eq!(shortest.len(), times.len(), "each run has the same steps");
            for (known, time) in shortest.iter_mut().zip(times) {
                *known = time.min(*known);
            }
        }
    }
    let steps = shortest.len();
    let longest = shortest.into_iter().zip(1..).max().unwrap_or_default();
    let (time, number): (Duration, u32) = longest;
    let (name, microseconds) = (scenario.name, time.as_micros());
    println!("| {name} | {policy} | {microseconds} | {number} | {steps} |");
}

/// The time of each step of a scenario.
fn run_once(scenario: &Scenario, policy: PolicyName) -> Vec<Duration> {
    let mut load = scenario.prepare(policy);
    let mut times = Vec::new();
    for number in 0.. {
        let Some(input) = scenario.input(&mut load, number) else {
            return times;
        };
        step(&mut load, &mut times, |load| load.apply(input));
        for _ in 0..DUE_AT_ONCE_MAX {
            if !load.is_due() {
                break;
            }
            step(&mut load, &mut times, Load::handle_timeout);
        }
    }
    times
}

fn step(load: &mut Load, times: &mut Vec<Duration>, step: impl FnOnce(&mut Load)) {
    let start = Instant::now();
    step(load);
    times.push(start.elapsed());
    load.take_effects();
}
