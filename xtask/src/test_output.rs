//! Runs a test command, shows its output, and names each failed test again at the end.
//!
//! `cargo test` ends with the names of the failed binaries only, thousands of lines below the failed tests.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::process::command_line;

/// Figures of a run, collected line by line.
#[derive(Debug, Default)]
struct Summary {
    binary: String,
    /// Tests by [`OUTCOMES`].
    counts: [u64; 3],
    failures: Vec<String>,
}

/// The outcomes in a line `test result: ok. 1 passed; 0 failed; 0 ignored; ...`.
const OUTCOMES: [&str; 3] = ["passed;", "failed;", "ignored;"];

impl Summary {
    fn read(&mut self, line: &str) {
        let heading = line.trim_start();
        if let Some(binary) = heading.strip_prefix("Running ") {
            let (name, _) = binary.split_once(" (").unwrap_or((binary, ""));
            name.clone_into(&mut self.binary);
        } else if let Some(package) = heading.strip_prefix("Doc-tests ") {
            self.binary = format!("documentation of {package}");
        } else if let Some(name) = failed_test(line) {
            self.failures.push(format!("{}: {name}", self.binary));
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            let words: Vec<&str> = counts.split_whitespace().collect();
            for (sum, outcome) in self.counts.iter_mut().zip(OUTCOMES) {
                let count = words.iter().zip(words.iter().skip(1));
                let mut count = count.filter(|(_, word)| **word == outcome);
                *sum += count
                    .find_map(|(count, _)| count.parse::<u64>().ok())
                    .unwrap_or(0);
            }
        }
    }
}

/// The name in `test NAME ... FAILED`.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// Runs a test command to its end.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let command_line = command_line(command);
    // One stream, so that the runner's headings and the tests' results keep their order.
    let (reader, writer) = std::io::pipe()?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()
        .with_context(|| format!("cannot start `{command_line}`"))?;
    // The command holds the write ends that its child has copied; the reader sees the end only without them.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut summary = Summary::default();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        summary.read(&line);
    }
    let status = child.wait()?;
    let Summary {
        counts: [passed, failed, ignored],
        failures,
        ..
    } = summary;
    for failure in &failures {
        println!("failed: {failure}");
    }
    println!("{passed} passed, {failed} failed, {ignored} skipped");
    if !status.success() {
        bail!(
            "`{command_line}` failed ({status}): {}",
            failures.join(", ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Summary;

    #[test]
    fn the_summary_counts_tests_and_names_failures_with_their_binary() {
        let mut summary = Summary::default();
        for line in [
            "     Running tests/queue.rs (target/debug/deps/queue-1)",
            "test a_full_queue_refuses ... ok",
            "test order_is_kept ... FAILED",
            "test result: FAILED. 1 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.10s",
            "   Doc-tests isotherm_router",
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s",
        ] {
            summary.read(line);
        }
        assert_eq!(summary.counts, [13, 1, 2]);
        assert_eq!(summary.failures, ["tests/queue.rs: order_is_kept"]);
    }
}
