//! Counts native instructions with callgrind, inside the function that runs one unit and nothing else.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use isotherm_bench_core::units::UNITS;

use crate::baseline::Counts;

/// The counted function of `isotherm-bench-unit`; a hash follows its name.
const FUNCTION: &str = "isotherm_bench_unit::counted*";

/// Counts every unit; `None` without valgrind.
///
/// # Errors
/// When valgrind does not run, or reports no count.
pub(crate) fn count(program: &Path) -> anyhow::Result<Option<Counts>> {
    if !is_installed() {
        return Ok(None);
    }
    let mut counts = Counts::new();
    for unit in UNITS {
        let out = std::env::temp_dir().join(format!(
            "isotherm-callgrind-{}-{}",
            std::process::id(),
            unit.name
        ));
        let ran = Command::new("valgrind")
            .args(["--tool=callgrind", "--collect-atstart=no"])
            .arg(format!("--toggle-collect={FUNCTION}"))
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(program)
            .arg(unit.name)
            .output()
            .context("cannot start valgrind")?;
        let written = fs::read_to_string(&out);
        let _ = fs::remove_file(&out);
        if !ran.status.success() {
            bail!(
                "valgrind on {}: {}",
                unit.name,
                String::from_utf8_lossy(&ran.stderr)
            );
        }
        let count = total(&written?)
            .filter(|count| *count > 0)
            .with_context(|| format!("callgrind counts no instruction of {}", unit.name))?;
        counts.insert(unit.name.to_owned(), count);
    }
    Ok(Some(counts))
}

fn is_installed() -> bool {
    Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The count in the line `totals: N`, or `summary: N` of older releases.
fn total(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| {
            line.strip_prefix("totals:")
                .or_else(|| line.strip_prefix("summary:"))
        })?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_total_is_found_under_both_names() {
        assert_eq!(super::total("events: Ir\nsummary: 12\n\n"), Some(12));
        assert_eq!(super::total("fn=(1)\n1 2\ntotals: 345\n"), Some(345));
        assert_eq!(super::total("events: Ir\n"), None);
    }
}
