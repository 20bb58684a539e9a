//! Circumstances of a run: the command line, the commit, the date and the machine.

use std::process::Command;
use std::{env, fs, thread};

use serde::Serialize;
use time::OffsetDateTime;

/// Circumstances of a run, without which a figure means nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunFacts {
    /// Command line that repeats the run.
    pub command: String,
    /// Commit of the working tree, with `-dirty` when files differ from it; `unknown` outside a working tree. The version of a
    /// released program.
    pub commit: String,
    /// Day of the run in UTC: `2026-11-22`.
    pub date: String,
    /// Processor, number of processors, memory.
    pub machine: String,
}

impl RunFacts {
    /// The circumstances now, of a run that `command` with this program's arguments repeats.
    pub fn collect(command: &str) -> Self {
        let arguments = env::args().skip(1);
        let words = core::iter::once(command.to_owned()).chain(arguments);
        Self {
            command: words.collect::<Vec<_>>().join(" "),
            commit: commit().unwrap_or_else(|| "unknown".to_owned()),
            date: OffsetDateTime::now_utc().date().to_string(),
            machine: machine(),
        }
    }

    /// The circumstances now, of a run of released programs. Git would tell of the user's own working tree.
    pub fn of_release(command: String) -> Self {
        Self {
            command,
            commit: format!("version {}", env!("CARGO_PKG_VERSION")),
            date: OffsetDateTime::now_utc().date().to_string(),
            machine: machine(),
        }
    }

    /// Names and values, in the order in which a report shows them.
    pub(crate) fn pairs(&self) -> [(&'static str, &str); 4] {
        [
            ("Command", &self.command),
            ("Commit", &self.commit),
            ("Date", &self.date),
            ("Machine", &self.machine),
        ]
    }
}

fn commit() -> Option<String> {
    let describe = ["describe", "--always", "--dirty", "--abbrev=12"];
    let output = Command::new("git")
        .args(describe)
        .args(["--exclude", "*"])
        .output()
        .ok()?;
    let commit = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !commit.is_empty()).then_some(commit)
}

/// Linux tells the processor and the memory; elsewhere only the number of processors is known.
fn machine() -> String {
    let processors = thread::available_parallelism().map_or(0, usize::from);
    let field = |path: &str, name: &str| {
        let text = fs::read_to_string(path).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let model = field("/proc/cpuinfo", "model name");
    let memory = field("/proc/meminfo", "MemTotal")
        .and_then(|memory| memory.strip_suffix(" kB")?.parse::<u64>().ok())
        .map(|kib| format!(", {} GiB of memory", (kib >> 20) + 1));
    format!(
        "{processors} processors{}{}",
        model.map_or_else(String::new, |model| format!(" ({model})")),
        memory.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_tells_its_version() {
        let facts = RunFacts::of_release("isotherm try".to_owned());
        assert_eq!(facts.command, "isotherm try");
        assert_eq!(
            facts.commit,
            format!("version {}", env!("CARGO_PKG_VERSION"))
        );
    }

    #[test]
    fn every_fact_has_a_value() {
        let facts = RunFacts::collect("cargo test");
        assert!(facts.command.starts_with("cargo test"), "{facts:?}");
        assert_eq!(facts.date.len(), "2026-11-22".len(), "{facts:?}");
        assert!(facts.machine.contains(" processors"), "{facts:?}");
        assert!(facts.pairs().iter().all(|(_, value)| !value.is_empty()));
    }
}
