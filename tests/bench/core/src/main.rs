//! `isotherm-bench-unit NAME`: gets one unit of work ready and runs it once more, inside [`counted`], for a tool that
//! counts instructions in there. Without a name it prints the names.
//!
//! `isotherm-bench-unit memory NODES`: fills an index with so many nodes in a process of its own, and says what that took.

use std::process::ExitCode;

use isotherm_bench_core::Work;
use isotherm_bench_core::load::{Load, config};
use isotherm_bench_core::units::{UNITS, Unit};
use isotherm_router::PolicyName;

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

/// Resident memory of this process, on Linux.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kibibytes * 1_024)
}
