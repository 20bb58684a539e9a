//! The accepted counts, and their comparison with new counts.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

/// Instructions of each unit.
pub(crate) type Counts = BTreeMap<String, u64>;

/// The tolerated growth, for the compiler of the baseline.
const TOLERANCE: f64 = 0.05;
/// The tolerated growth of native code, because libraries choose code by processor.
const TOLERANCE_NATIVE: f64 = 0.10;
/// The tolerated growth for another compiler.
const TOLERANCE_OTHER_COMPILER: f64 = 0.40;

/// The counter of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Counter {
    /// The interpreter's count of WebAssembly instructions.
    Sandbox,
    /// Callgrind's count of native instructions.
    Callgrind,
}

/// The committed file: counter, then compiler, then unit.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Baseline(BTreeMap<Counter, BTreeMap<String, Counts>>);

impl Baseline {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no baseline", path.display()))
    }

    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    pub(crate) fn accept(&mut self, counter: Counter, compiler: &str, counts: &Counts) {
        let of_counter = self.0.entry(counter).or_default();
        of_counter.insert(compiler.to_owned(), counts.clone());
    }

    /// Compares with the counts of the same compiler, or else of the last one by name.
    pub(crate) fn compare(
        &self,
        counter: Counter,
        compiler: &str,
        counts: &Counts,
    ) -> anyhow::Result<Comparison> {
        let of_counter = self.0.get(&counter);
        let accepted = of_counter.and_then(|of_counter| {
            let of_compiler = of_counter.get_key_value(compiler);
            of_compiler.or_else(|| of_counter.last_key_value())
        });
        let (base, before) =
            accepted.with_context(|| format!("the baseline has no {counter:?}"))?;
        let (place, tolerance) = match counter {
            Counter::Sandbox => ("in the sandbox", TOLERANCE),
            Counter::Callgrind => ("under callgrind", TOLERANCE_NATIVE),
        };
        let mut heading = format!("instructions {place}, {compiler}");
        let tolerance = if base == compiler {
            tolerance
        } else {
            heading += &format!(", which has no baseline; compared with {base}");
            TOLERANCE_OTHER_COMPILER
        };
        let units = counts.iter();
        Ok(Comparison {
            heading,
            tolerance,
            units: units
                .map(|(unit, now)| (unit.clone(), before.get(unit).copied(), *now))
                .collect(),
        })
    }
}

/// A comparison of counts with the baseline.
#[derive(Debug)]
pub(crate) struct Comparison {
    heading: String,
    tolerance: f64,
    /// Name, baseline and count of each unit.
    units: Vec<(String, Option<u64>, u64)>,
}

impl Comparison {
    /// Advice after growth beyond the tolerance.
    pub(crate) const ADVICE: &str = "More instructions than the baseline allows. If you intend this, explain it in the commit and accept it: \
         `cargo xtask bench counts --accept`";

    /// Whether the baseline has each unit, and no unit has grown beyond the tolerance.
    pub(crate) fn holds(&self) -> bool {
        let mut units = self.units.iter();
        units.all(|(_, before, now)| before.is_some_and(|before| !self.is_worse(before, *now)))
    }

    fn is_worse(&self, before: u64, now: u64) -> bool {
        now as f64 > before as f64 * (1.0 + self.tolerance)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.tolerance * 100.0;
        writeln!(f, "{} (up to {percent:+.0} % is the same)", self.heading)?;
        for (unit, before, now) in &self.units {
            write!(f, "  {unit:<28} {now:>12}")?;
            let Some(before) = before else {
                writeln!(f, "  new: not in the baseline")?;
                continue;
            };
            let change = (*now as f64 / *before as f64 - 1.0) * 100.0;
            let mark = if self.is_worse(*before, *now) {
                "  MORE"
            } else {
                ""
            };
            writeln!(f, "  {change:+.1} %{mark}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(&str, u64)]) -> Counts {
        pairs
            .iter()
            .map(|(unit, count)| ((*unit).to_owned(), *count))
            .collect()
    }

    fn baseline() -> Baseline {
        let mut baseline = Baseline::default();
        baseline.accept(Counter::Sandbox, "one", &counts(&[("a", 1_000)]));
        baseline
    }

    fn holds(compiler: &str, pairs: &[(&str, u64)]) -> bool {
        let compared = baseline().compare(Counter::Sandbox, compiler, &counts(pairs));
        compared.unwrap().holds()
    }

    #[test]
    fn growth_within_the_tolerance_holds() {
        assert!(holds("one", &[("a", 1_050)]));
        assert!(!holds("one", &[("a", 1_051)]));
        assert!(holds("one", &[("a", 10)]));
    }

    #[test]
    fn another_compiler_has_more_tolerance() {
        assert!(holds("two", &[("a", 1_400)]));
        assert!(!holds("two", &[("a", 1_401)]));
    }

    #[test]
    fn a_unit_without_a_baseline_does_not_hold() {
        assert!(!holds("one", &[("a", 1_000), ("b", 1)]));
        let compared = baseline().compare(Counter::Callgrind, "one", &Counts::new());
        assert!(compared.is_err());
    }

    #[test]
    fn a_written_baseline_is_read_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        baseline().write(file.path()).unwrap();
        let read = Baseline::read(file.path()).unwrap();
        let compared = read.compare(Counter::Sandbox, "one", &counts(&[("a", 2_000)]));
        let shown = compared.unwrap().to_string();
        assert!(shown.contains("+100.0 %  MORE"), "{shown}");
    }
}
