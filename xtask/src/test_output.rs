//! Runs test commands, shows their output, and names each failed test again at the end.
//!
//! `cargo test` ends with the names of the failed binaries only, thousands of lines below the failed tests.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, anyhow, bail, ensure};

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
        if let Some(binary) = heading(line) {
            self.binary = binary;
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

/// The test binary that a line announces.
fn heading(line: &str) -> Option<String> {
    let line = line.trim_start();
    if let Some(binary) = line.strip_prefix("Running ") {
        let (name, _) = binary.split_once(" (").unwrap_or((binary, ""));
        return Some(name.to_owned());
    }
    let package = line.strip_prefix("Doc-tests ")?;
    Some(format!("documentation of {package}"))
}

/// The name in `test NAME ... FAILED`.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// The unit in which the output of a test command is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputUnit {
    /// A line, at once.
    Line,
    /// All lines of a test binary when it ends, so that they stay together beside the lines of another command.
    Binary,
}

/// Figures of all commands, and an error for each command that failed.
#[derive(Debug, Default)]
struct Report {
    counts: [u64; 3],
    failures: Vec<String>,
    errors: Vec<String>,
}

impl Report {
    fn add(&mut self, other: Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
        self.failures.extend(other.failures);
        self.errors.extend(other.errors);
    }

    /// Names of the failed tests, without their binaries.
    fn failed_tests(&self) -> Vec<String> {
        let names = self.failures.iter();
        let names = names.filter_map(|failure| failure.split_once(": "));
        names.map(|(_, name)| name.to_owned()).collect()
    }

    /// Prints the failed tests and the figures.
    fn finish(self) -> anyhow::Result<()> {
        for failure in &self.failures {
            println!("failed: {failure}");
        }
        let [passed, failed, ignored] = self.counts;
        println!("{passed} passed, {failed} failed, {ignored} skipped");
        if self.errors.is_empty() {
            return Ok(());
        }
        bail!("{}", self.errors.join("; "))
    }
}

/// Runs a test command to its end.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    execute(command, OutputUnit::Line)?.finish()
}

/// Runs a test command to its end, and returns the names of the failed tests besides the result.
pub(crate) fn run_and_name_failures(
    command: &mut Command,
) -> anyhow::Result<(Vec<String>, anyhow::Result<()>)> {
    let report = execute(command, OutputUnit::Line)?;
    Ok((report.failed_tests(), report.finish()))
}

/// Runs a command of `count` tests to its end, and returns the names of the failed ones.
pub(crate) fn failed_tests(command: &mut Command, count: usize) -> anyhow::Result<Vec<String>> {
    let report = execute(command, OutputUnit::Line)?;
    let [passed, failed, _] = report.counts;
    ensure!(
        usize::try_from(passed + failed)? == count,
        "{} tests ran instead of {count}: {}",
        passed + failed,
        report.errors.join("; ")
    );
    Ok(report.failed_tests())
}

/// Runs two lists of test commands side by side, the commands of a list one after the other. A failed command does not hide
/// the ones after it.
pub(crate) fn run_side_by_side(
    first: &mut [Command],
    second: &mut [Command],
) -> anyhow::Result<()> {
    let report = thread::scope(|scope| {
        let second = scope.spawn(|| run_all(second, OutputUnit::Binary));
        let mut report = run_all(first, OutputUnit::Line);
        let second = second.join();
        report.add(second.map_err(|_| anyhow!("a thread that runs tests panicked"))?);
        anyhow::Ok(report)
    });
    report?.finish()
}

fn run_all(commands: &mut [Command], unit: OutputUnit) -> Report {
    let mut report = Report::default();
    for command in commands {
        match execute(command, unit) {
            Ok(part) => report.add(part),
            Err(error) => report.errors.push(format!("{error:#}")),
        }
    }
    report
}

fn execute(command: &mut Command, unit: OutputUnit) -> anyhow::Result<Report> {
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
    let mut held = String::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if heading(&line).is_some() {
            print!("{held}");
            held.clear();
        }
        held.push_str(&line);
        held.push('\n');
        if unit == OutputUnit::Line {
            print!("{held}");
            held.clear();
        }
        summary.read(&line);
    }
    print!("{held}");
    let status = child.wait()?;
    let Summary {
        counts, failures, ..
    } = summary;
    let error = || {
        format!(
            "`{command_line}` failed ({status}): {}",
            failures.join(", ")
        )
    };
    Ok(Report {
        counts,
        errors: (!status.success()).then(error).into_iter().collect(),
        failures,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn commands_side_by_side_all_run_and_each_failure_is_named() {
        let mut first = [
            shell("echo 'test order ... FAILED'; exit 1"),
            shell("echo 'test result: ok. 1 passed;'; exit 3"),
        ];
        let mut second = [shell("exit 0"), shell("exit 5")];
        let error = run_side_by_side(&mut first, &mut second).unwrap_err();
        let error = error.to_string();
        for part in [
            "exit status: 1): : order",
            "exit status: 3",
            "exit status: 5",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

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
