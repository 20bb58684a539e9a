//! What came out, for people (a table of medians) and for programs (every sample).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use super::WORKLOADS;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    /// How often each row had its turn.
    pub rounds: u32,
    /// How long a turn was.
    pub seconds: u32,
    /// How many clients asked.
    pub clients: u16,
    /// How many replicas answered.
    pub replicas: u16,
    /// Memory at the end, by row.
    pub memory: Vec<Memory>,
    /// Every turn.
    pub samples: Vec<Sample>,
}

/// One turn of one row.
#[derive(Debug, Serialize)]
pub struct Sample {
    /// Which row.
    pub subject: &'static str,
    /// What was asked.
    pub workload: &'static str,
    /// Requests answered.
    pub requests: u64,
    /// Requests that were not.
    pub failed: u64,
    /// Answered requests a second.
    pub per_second: f64,
    /// CPU time per answered request of each process, in microseconds.
    pub cpu_micros: BTreeMap<&'static str, f64>,
}

/// The memory of one row at the end.
#[derive(Debug, Serialize)]
pub struct Memory {
    /// Which row.
    pub subject: &'static str,
    /// Prompts that it had seen in the measured windows, no two alike.
    pub prompts: u64,
    /// Resident memory of each process.
    pub resident_bytes: BTreeMap<&'static str, u64>,
}

/// The middle of some values and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let upper = *values.get(values.len() / 2)?;
        let lower = *values.get((values.len() - 1) / 2)?;
        Some(Self {
            median: f64::midpoint(lower, upper),
            least,
            most,
        })
    }
}

impl Report {
    /// Medians over the rounds, in Markdown.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        for workload in &WORKLOADS {
            let _ = writeln!(
                text,
                "\n{}: CPU microseconds per request, and requests per second\n\n\
                 | | CPU us (least to most) | of which | to plain Envoy | requests/s (least to most) |\n\
                 | --- | --- | --- | --- | --- |",
                workload.name
            );
            let mut base = None;
            for row in &self.memory {
                self.line(&mut text, row.subject, workload.name, &mut base);
            }
        }
        let _ = writeln!(text, "\nMemory at the end\n");
        for row in &self.memory {
            let parts = row.resident_bytes.iter();
            let parts: Vec<String> = parts
                .map(|(label, bytes)| format!("{label} {} MB", bytes / 1_000_000))
                .collect();
            let _ = writeln!(
                text,
                "- {}: {} after {} prompts",
                row.subject,
                parts.join(", "),
                row.prompts
            );
        }
        let failed: u64 = self.samples.iter().map(|sample| sample.failed).sum();
        let _ = writeln!(text, "\nRequests that failed: {failed}");
        text
    }

    /// Writes every sample as JSON.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn write(&self, directory: &Path) -> anyhow::Result<PathBuf> {
        let path = directory.join("path.json");
        fs::write(&path, serde_json::to_string_pretty(self)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    fn line(&self, text: &mut String, subject: &str, workload: &str, base: &mut Option<f64>) {
        let own: Vec<&Sample> = self
            .samples
            .iter()
            .filter(|sample| sample.subject == subject && sample.workload == workload)
            .collect();
        let total = Spread::of(own.iter().map(|sample| sample.cpu_micros.values().sum()));
        let rate = Spread::of(own.iter().map(|sample| sample.per_second));
        let (Some(total), Some(rate)) = (total, rate) else {
            return;
        };
        let labels = own.first().map(|sample| sample.cpu_micros.keys());
        let parts: Vec<String> = labels
            .into_iter()
            .flatten()
            .filter_map(|label| {
                let values = own.iter().filter_map(|sample| sample.cpu_micros.get(label));
                Some(format!(
                    "{label} {:.0}",
                    Spread::of(values.copied())?.median
                ))
            })
            .collect();
        let ratio = total.median / *base.get_or_insert(total.median);
        let _ = writeln!(
            text,
            "| {subject} | {:.0} ({:.0} to {:.0}) | {} | {ratio:.2} | {:.0} ({:.0} to {:.0}) |",
            total.median,
            total.least,
            total.most,
            parts.join(", "),
            rate.median,
            rate.least,
            rate.most
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(subject: &'static str, micros: f64) -> Sample {
        Sample {
            subject,
            workload: "4 KB",
            requests: 1,
            failed: 0,
            per_second: 1_000.0,
            cpu_micros: BTreeMap::from([("Envoy", micros), ("service", 10.0)]),
        }
    }

    #[test]
    fn a_spread_has_its_middle_and_its_ends() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0].into_iter()).unwrap();
        assert_eq!((spread.least, spread.median, spread.most), (1.0, 2.5, 4.0));
        assert_eq!(Spread::of([].into_iter()), None);
    }

    #[test]
    fn the_table_adds_up_processes_and_compares_with_the_first_row() {
        let memory = |subject| Memory {
            subject,
            prompts: 3,
            resident_bytes: BTreeMap::from([("Envoy", 50_000_000)]),
        };
        let samples = [("a", 90.0), ("a", 80.0), ("a", 95.0), ("b", 190.0)];
        let report = Report {
            rounds: 3,
            seconds: 1,
            clients: 1,
            replicas: 1,
            memory: vec![memory("a"), memory("b")],
            samples: samples.map(|(name, micros)| sample(name, micros)).into(),
        };
        let table = report.table();
        assert!(table.contains("| a | 100 (90 to 105) | Envoy 90, service 10 | 1.00 |"));
        assert!(table.contains("| b | 200 (200 to 200) | Envoy 190, service 10 | 2.00 |"));
        assert!(table.contains("- b: Envoy 50 MB after 3 prompts"));
    }
}
