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
    /// The interpreter's account, of WebAssembly.
    Sandbox,
    /// Callgrind, of native code.
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

    /// Compares with the figures of the same compiler, or else of the one that comes last by its name.
    pub(crate) fn judge(
        &self,
        counter: Counter,
        compiler: &str,
        counts: &Counts,
    ) -> anyhow::Result<Verdict> {
        let of_counter = self
            .0
            .get(&counter)
            .filter(|of_counter| !of_counter.is_empty());
        let of_counter = of_counter.with_context(|| format!("the baseline has no {counter:?}"))?;
        let (of, before, tolerance) = match of_counter.get_key_value(compiler) {
            Some((of, before)) => {
                let tolerance = match counter {
                    Counter::Sandbox => TOLERANCE,
                    Counter::Callgrind => TOLERANCE_NATIVE,
                };
                (of, before, tolerance)
            }
            None => {
                let (of, before) = of_counter.last_key_value().context("it is not empty")?;
                (of, before, TOLERANCE_OTHER_COMPILER)
            }
        };
        let lines = counts
            .iter()
            .map(|(unit, now)| (unit.clone(), before.get(unit).copied(), *now));
        Ok(Verdict {
            counter,
            compiler: compiler.to_owned(),
            of: of.clone(),
            tolerance,
            lines: lines.collect(),
        })
    }
}

/// A comparison.
#[derive(Debug)]
pub(crate) struct Verdict {
    counter: Counter,
    compiler: String,
    /// The compiler of the baseline.
    of: String,
    tolerance: f64,
    /// Unit, then before, then now.
    lines: Vec<(String, Option<u64>, u64)>,
}

impl Verdict {
    /// What to do when it is not good.
    pub(crate) const ADVICE: &str = "More instructions than the baseline allows. Where that is meant, say why in the commit, and accept it: \
         `cargo xtask bench counts --accept`";

    /// Whether each unit is known and none has grown by more than is tolerated.
    pub(crate) fn is_good(&self) -> bool {
        self.lines
            .iter()
            .all(|(_, before, now)| before.is_some_and(|before| !self.is_worse(before, *now)))
    }

    fn is_worse(&self, before: u64, now: u64) -> bool {
        now as f64 > before as f64 * (1.0 + self.tolerance)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counter = match self.counter {
            Counter::Sandbox => "in the sandbox",
            Counter::Callgrind => "under callgrind",
        };
        write!(f, "instructions {counter}, {}", self.compiler)?;
        if self.of != self.compiler {
            write!(f, ", which has no baseline; compared with {}", self.of)?;
        }
        writeln!(f, " (up to {:+.0} % is the same)", self.tolerance * 100.0)?;
        for (unit, before, now) in &self.lines {
            write!(f, "  {unit:<28} {now:>12}")?;
            match before {
                None => writeln!(f, "  new: not in the baseline")?,
                Some(before) => {
                    let change = (*now as f64 / *before as f64 - 1.0) * 100.0;
                    let mark = if self.is_worse(*before, *now) {
                        "  MORE"
                    } else {
                        ""
                    };
                    writeln!(f, "  {change:+.1} %{mark}")?;
                }
            }
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

    fn is_good(compiler: &str, pairs: &[(&str, u64)]) -> bool {
        let judged = baseline().judge(Counter::Sandbox, compiler, &counts(pairs));
        judged.unwrap().is_good()
    }

    #[test]
    fn more_than_tolerated_is_not_good_and_less_is() {
        assert!(is_good("one", &[("a", 1_050)]));
        assert!(!is_good("one", &[("a", 1_051)]));
        assert!(is_good("one", &[("a", 10)]));
    }

    #[test]
    fn another_compiler_is_tolerated_more() {
        assert!(is_good("two", &[("a", 1_400)]));
        assert!(!is_good("two", &[("a", 1_401)]));
    }

    #[test]
    fn a_unit_that_the_baseline_does_not_know_is_not_good() {
        assert!(!is_good("one", &[("a", 1_000), ("b", 1)]));
        let judged = baseline().judge(Counter::Callgrind, "one", &Counts::new());
        assert!(judged.is_err());
    }

    #[test]
    fn what_is_written_is_read_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        baseline().write(file.path()).unwrap();
        let read = Baseline::read(file.path()).unwrap();
        let judged = read.judge(Counter::Sandbox, "one", &counts(&[("a", 2_000)]));
        let shown = judged.unwrap().to_string();
        assert!(shown.contains("+100.0 %  MORE"), "{shown}");
    }
}
