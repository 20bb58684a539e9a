//! `bench core`: Criterion natively, the extractor inside Envoy's V8, and one table of both in `target/bench/core.md`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use super::sandbox;
use crate::cargo::{build_release, cargo, made, root, target_dir};
use crate::process::{self, say};

/// The packages whose benches are the core's.
const PACKAGES: [&str; 2] = ["isotherm-bench-core", "isotherm-regions"];

/// Runs everything; `filters` are Criterion's: only benches whose names contain them.
///
/// # Errors
/// When a bench cannot be built or fails.
pub(crate) fn run(filters: &[String]) -> anyhow::Result<()> {
    let root = root();
    let results = target_dir(&root).join("criterion");
    // Of another run with other benches, which would stand in the table as if they were of this one.
    let _ = fs::remove_dir_all(&results);
    for package in PACKAGES {
        process::run(
            cargo(&root)
                .args(["bench", "--locked", "--package", package, "--"])
                .args(filters),
        )?;
    }
    let mut table = String::from("| bench | median | |\n| --- | --- | --- |\n");
    for line in native(&results)? {
        let _ = writeln!(table, "{line}");
    }
    if filters.is_empty() {
        say("memory of the index");
        let unit = build_release(&root, &["isotherm-bench-core"])?.join("isotherm-bench-unit");
        for nodes in ["10000", "1000000", "10000000"] {
            let told = process::output(Command::new(&unit).args(["memory", nodes]))?;
            let _ = writeln!(table, "| memory | {} | |", told.trim());
        }
    }
    if filters.is_empty()
        || filters
            .iter()
            .any(|filter| "extract".contains(filter.as_str()))
    {
        say("the extractor inside Envoy's V8");
        for timed in sandbox::time(&root)? {
            let _ = writeln!(
                table,
                "| {}, WebAssembly in Envoy's V8 | {} | {} |",
                timed.unit,
                time(timed.nanoseconds),
                rate(timed.bytes, timed.nanoseconds)
            );
        }
    }
    let directory = made(&root).join("bench");
    fs::create_dir_all(&directory)?;
    let path = directory.join("core.md");
    fs::write(&path, &table).with_context(|| format!("cannot write {}", path.display()))?;
    println!("\n{table}\n{}", path.display());
    Ok(())
}

/// A line for each result that Criterion has left, by name.
fn native(results: &Path) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    collect(results, &mut found);
    found.sort();
    let line = |directory: &PathBuf| -> anyhow::Result<String> {
        let estimates = read(&directory.join("estimates.json"))?;
        let about = read(&directory.join("benchmark.json"))?;
        let name = about.get("full_id").and_then(Value::as_str);
        let nanoseconds = estimates.pointer("/median/point_estimate");
        let nanoseconds = nanoseconds
            .and_then(Value::as_f64)
            .context("no median in estimates.json")?;
        let bytes = about.pointer("/throughput/Bytes").and_then(Value::as_f64);
        Ok(format!(
            "| {} | {} | {} |",
            name.unwrap_or("?"),
            time(nanoseconds),
            rate(bytes, nanoseconds)
        ))
    };
    found.iter().map(line).collect()
}

/// Every directory `new` below with figures, which is where the latest run is; a bench may be called so, too.
fn collect(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if entry.file_name() == "new" && path.join("estimates.json").is_file() {
                found.push(path);
            } else {
                collect(&path, found);
            }
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))
}

fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        short if short < 1e3 => format!("{short:.0} ns"),
        middle if middle < 1e6 => format!("{:.2} us", middle / 1e3),
        long => format!("{:.2} ms", long / 1e6),
    }
}

/// Gigabytes a second, where it reads bytes.
fn rate(bytes: Option<f64>, nanoseconds: f64) -> String {
    bytes.map_or_else(String::new, |bytes| {
        format!("{:.2} GB/s", bytes / nanoseconds)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_rates_have_units_that_people_read() {
        assert_eq!(time(12.4), "12 ns");
        assert_eq!(time(1_250.0), "1.25 us");
        assert_eq!(time(3_000_000.0), "3.00 ms");
        assert_eq!(rate(Some(4_000.0), 2_000.0), "2.00 GB/s");
        assert_eq!(rate(None, 1.0), "");
    }
}
