//! The result of the runs, what must hold of them, and the report.

use isotherm_report::number::{percent, whole};
use isotherm_report::{Cell, Conclusion, Report, RunFacts, Section, Table};
use serde::Serialize;

use super::run::{RunResult, TierRun};
use super::setup::TierSetup;
use crate::metrics::RequestMetrics;

/// Interactive p90 TTFT beside batch work over that alone, at most.
const INTERACTIVE_MAX: f64 = 1.05;
/// Batch output over what an oracle leaves it, at least.
const BATCH_MIN: f64 = 0.9;
/// p90 TTFT of the other tenants in a burst over that without one, at most.
const BURST_MAX: f64 = 1.2;
/// Cache hits of the other tenants in a bounded burst over those without a bound, at least.
const HITS_MIN: f64 = 0.95;

/// The measurements of every run: `report.json`.
#[derive(Clone, Debug, Serialize)]
pub struct TiersComparison {
    /// Circumstances of all runs.
    pub setup: TierSetup,
    /// Runs in order of execution.
    pub runs: Vec<RunResult>,
}

impl TiersComparison {
    pub(super) fn new(setup: TierSetup, runs: Vec<RunResult>) -> Self {
        Self { setup, runs }
    }

    fn run(&self, run: TierRun) -> Option<&RunResult> {
        self.runs.iter().find(|result| result.run == run)
    }

    /// Whether every expectation holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        let mut conclusions = self.conclusions().into_iter();
        conclusions.all(|claim| claim.holds != Some(false))
    }

    fn conclusions(&self) -> Vec<Conclusion> {
        let mut conclusions = Vec::new();
        if let (Some(alone), Some(both)) = (self.run(TierRun::Interactive), self.run(TierRun::Both))
        {
            conclusions.push(at_most(
                "p90 TTFT of interactive clients beside batch work, over that without",
                INTERACTIVE_MAX,
                (both.interactive.ttft_ms.p90, alone.interactive.ttft_ms.p90),
                "ms",
            ));
            if let Some(fewer) = self.run(TierRun::Fewer) {
                let p90s = [fewer, alone].map(|run| run.interactive.ttft_ms.p90);
                conclusions.push(noted(
                    "For comparison, p90 TTFT of interactive clients without batch work on one replica fewer, over that on all",
                    p90s.into(),
                    "ms",
                ));
            }
            if let Some(batch) = self.run(TierRun::Batch) {
                // Without a measure of memory, an oracle leaves nothing, and the expectation does not hold.
                let left = oracle(alone, batch).unwrap_or_default();
                conclusions.push(at_least(
                    "batch tokens/s beside interactive clients, over what an oracle leaves them",
                    BATCH_MIN,
                    (both.batch.output_tokens_per_s, left),
                    "tokens/s",
                ));
            }
        }
        if let (Some(usual), Some(bounded)) =
            (self.run(TierRun::Tenants), self.run(TierRun::BoundedBurst))
        {
            conclusions.push(at_most(
                "p90 TTFT of the other tenants in a bounded burst, over that without a burst",
                BURST_MAX,
                (bounded.others.ttft_ms.p90, usual.others.ttft_ms.p90),
                "ms",
            ));
        }
        let bursts = [TierRun::BoundedBurst, TierRun::UnboundedBurst];
        if let [Some(bounded), Some(unbounded)] = bursts.map(|run| self.run(run)) {
            let hits = |run: &RunResult| run.others.cache_hit_ratio;
            conclusions.push(at_least(
                "cache hits of the other tenants in a bounded burst, over those without a bound",
                HITS_MIN,
                (100.0 * hits(bounded), 100.0 * hits(unbounded)),
                "%",
            ));
        }
        let failed = self.runs.iter().map(|run| match run.run {
            // The bound refuses requests of the tenant that bursts.
            TierRun::BoundedBurst => run.others.failed,
            // Without a bound, a burst may fill the queue.
            TierRun::UnboundedBurst => 0,
            _ => run.interactive.failed + run.batch.failed,
        });
        let failed: usize = failed.sum();
        let promise =
            "no request failed without a burst, and none of the other tenants in a bounded one";
        let claim = Conclusion::claim(promise, failed == 0);
        conclusions.push(claim.measured(format!("{failed} failed")));
        conclusions
    }

    fn table(&self) -> Table {
        let columns = [
            "run",
            "clients",
            "requests",
            "failed",
            "TTFT p50 ms",
            "TTFT p90 ms",
            "TTFT p99 ms",
            "cache hits",
            "tokens/s",
            "KV memory",
        ];
        let mut table = Table::new(columns);
        for run in &self.runs {
            let groups = [
                ("interactive", &run.interactive),
                ("other tenants", &run.others),
                ("batch", &run.batch),
            ];
            for (clients, metrics) in groups {
                if metrics.completed + metrics.failed > 0 {
                    table.push(row(run, clients, metrics));
                }
            }
        }
        let shown = [
            "run",
            "clients",
            "TTFT p50 ms",
            "TTFT p90 ms",
            "cache hits",
            "tokens/s",
        ];
        table.headline(&shown, |row| row.text(1) != "other tenants")
    }

    /// The report.
    ///
    /// # Errors
    /// When the measurements have no JSON form.
    pub fn report(&self) -> anyhow::Result<Report> {
        let setup = &self.setup;
        let introduction = Section::new("").text(format!(
            "Each run: {} fresh replicas ({}), or one fewer where a run says so, behind the shipped Envoy configuration, and the same \
             interactive requests. Engines and clients are {} times as fast as real time; every time and rate is by the engines' clock.",
            setup.replicas, setup.engine, setup.speed
        ));
        let sections = [
            introduction.conclusions(self.conclusions()),
            Section::new("").table(self.table()),
        ];
        let report = Report {
            facts: Some(RunFacts::collect("cargo xtask")),
            footer: "TTFT: time to first token. KV memory: mean share of the memory for KV caches in use, as the gate sees it. The \
                     oracle gives batch work, at every moment, the part of that memory which batch work alone uses and \
                     interactive clients leave free: tokens/s of batch alone, times the mean of that part."
                .into(),
            ..Report::new("Isotherm: tiers and tenants", sections)
        };
        report.with_data(self)
    }
}

fn row(run: &RunResult, clients: &str, metrics: &RequestMetrics) -> [Cell; 10] {
    let ttft = &metrics.ttft_ms;
    [
        run.run.label().into(),
        clients.to_owned().into(),
        metrics.completed.into(),
        Cell::zero_expected(metrics.failed),
        whole(ttft.p50).into(),
        whole(ttft.p90).into(),
        whole(ttft.p99).into(),
        percent(metrics.cache_hit_ratio).into(),
        whole(metrics.output_tokens_per_s).into(),
        percent(run.utilisation_mean).into(),
    ]
}

/// The batch tokens a second that an oracle leaves: those of batch work alone, as far as interactive clients leave the memory free that
/// it uses; `None` where the gate has told no use of memory.
fn oracle(interactive: &RunResult, batch: &RunResult) -> Option<f64> {
    let used = batch.utilisation_mean;
    let looks = interactive.utilisation.len();
    if used <= 0.0 || looks == 0 {
        return None;
    }
    let left = |taken: &f64| ((used - taken) / used).clamp(0.0, 1.0);
    let share = interactive.utilisation.iter().map(left).sum::<f64>() / looks as f64;
    Some(batch.batch.output_tokens_per_s * share)
}

fn ratio((ours, theirs): (f64, f64)) -> f64 {
    ours / theirs.max(f64::MIN_POSITIVE)
}

fn at_most(what: &str, max: f64, values: (f64, f64), unit: &str) -> Conclusion {
    let holds = values.1 > 0.0 && ratio(values) <= max;
    claim(format!("{what}: at most {max:.2}"), holds, values, unit)
}

fn at_least(what: &str, min: f64, values: (f64, f64), unit: &str) -> Conclusion {
    let holds = values.1 > 0.0 && ratio(values) >= min;
    claim(format!("{what}: at least {min:.2}"), holds, values, unit)
}

fn noted(what: &str, values: (f64, f64), unit: &str) -> Conclusion {
    Conclusion::note(what).measured(figures(values, unit))
}

fn claim(text: String, holds: bool, values: (f64, f64), unit: &str) -> Conclusion {
    Conclusion::claim(text, holds).measured(figures(values, unit))
}

fn figures((ours, theirs): (f64, f64), unit: &str) -> String {
    let ratio = ratio((ours, theirs));
    format!("{ours:.0} against {theirs:.0} {unit}: {ratio:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Summary;

    fn metrics(p90: f64, hits: f64, tokens_per_s: f64) -> RequestMetrics {
        RequestMetrics {
            completed: 10,
            cache_hit_ratio: hits,
            output_tokens_per_s: tokens_per_s,
            ttft_ms: Summary {
                p90,
                ..Summary::default()
            },
            ..RequestMetrics::default()
        }
    }

    fn result(run: TierRun, p90: f64, hits: f64, batch: f64, utilisation: &[f64]) -> RunResult {
        RunResult {
            run,
            interactive: metrics(p90, hits, 0.0),
            others: metrics(p90, hits, 0.0),
            batch: metrics(0.0, 0.0, batch),
            utilisation: utilisation.to_vec(),
            utilisation_mean: utilisation.iter().sum::<f64>() / utilisation.len() as f64,
        }
    }

    /// Runs that keep every promise by a little.
    fn kept() -> TiersComparison {
        TiersComparison {
            setup: TierSetup {
                replicas: 4,
                engine: "e".into(),
                speed: 10.0,
                seed: 1,
            },
            runs: vec![
                result(TierRun::Interactive, 100.0, 0.5, 0.0, &[0.3, 0.0]),
                result(TierRun::Batch, 0.0, 0.0, 1_000.0, &[0.6, 0.6]),
                result(TierRun::Both, 104.0, 0.5, 690.0, &[0.6, 0.6]),
                result(TierRun::Tenants, 100.0, 0.5, 0.0, &[0.3]),
                result(TierRun::BoundedBurst, 119.0, 0.48, 0.0, &[0.9]),
                result(TierRun::UnboundedBurst, 900.0, 0.5, 0.0, &[0.9]),
            ],
        }
    }

    #[test]
    fn an_oracle_leaves_what_interactive_clients_do_not_use() {
        let comparison = kept();
        let (interactive, batch) = (&comparison.runs[0], &comparison.runs[1]);
        let left = oracle(interactive, batch).unwrap();
        assert!((left - 750.0).abs() < 1e-9);
    }

    #[test]
    fn without_a_measure_of_memory_an_oracle_leaves_nothing() {
        let mut comparison = kept();
        comparison.runs[0].utilisation.clear();
        assert_eq!(oracle(&comparison.runs[0], &comparison.runs[1]), None);
        assert!(!comparison.holds());
    }

    #[test]
    fn each_promise_fails_on_its_own() {
        assert!(kept().holds());
        let broken: [fn(&mut TiersComparison); 5] = [
            |c| c.runs[2].interactive.ttft_ms.p90 = 106.0,
            |c| c.runs[2].batch.output_tokens_per_s = 670.0,
            |c| c.runs[4].others.ttft_ms.p90 = 121.0,
            |c| c.runs[4].others.cache_hit_ratio = 0.47,
            |c| c.runs[4].others.failed = 1,
        ];
        for change in broken {
            let mut comparison = kept();
            change(&mut comparison);
            let conclusions = comparison.conclusions();
            let failed = conclusions
                .iter()
                .filter(|claim| claim.holds == Some(false));
            assert_eq!(failed.count(), 1, "{conclusions:?}");
        }
    }
}
