//! A comparison for people, and for programs.

use core::fmt::Write as _;

use isotherm_router::Push;
use serde::Serialize;

use super::saving::Savings;
use super::{BASELINE, Comparison, Plan, System, SystemFigures};
use crate::summary::Summary;

/// Ratio of p90 TTFT below which two policies count as equal.
const CLOSE: f64 = 1.05;

/// Everything that is reported.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// Input of the comparison.
    pub plan: &'a Plan,
    /// Result of the comparison.
    pub comparison: &'a Comparison,
    /// Replicas that the best policy saves.
    pub saving: Option<&'a Savings>,
}

#[derive(Serialize)]
struct Json<'a> {
    workload: &'a str,
    requests: usize,
    fleet: String,
    replicas: usize,
    slo_s: f64,
    seed: u64,
    systems: Vec<JsonSystem<'a>>,
    use_policy: Option<&'a str>,
    saving: Option<&'a Savings>,
    saved_share: Option<f64>,
}

#[derive(Serialize)]
struct JsonSystem<'a> {
    name: &'a str,
    #[serde(flatten)]
    summary: &'a Summary,
}

impl Report<'_> {
    /// For programs.
    ///
    /// # Errors
    /// A figure is no number.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        let name_of = |row: &'_ SystemFigures| row.system.as_str();
        let systems = self.comparison.rows.iter().map(|row| JsonSystem {
            name: name_of(row),
            summary: &row.summary,
        });
        serde_json::to_string_pretty(&Json {
            workload: &self.plan.workload.name,
            requests: self.plan.workload.requests(),
            fleet: self.plan.fleet.describe(),
            replicas: self.plan.fleet.replicas(),
            slo_s: self.plan.slo.as_secs_f64(),
            seed: self.plan.seed,
            systems: systems.collect(),
            use_policy: self.comparison.best.map(|policy| policy.as_str()),
            saving: self.saving,
            saved_share: self.saving.map(Savings::share),
        })
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.table(&mut text);
        text.push('\n');
        self.advice(&mut text);
        text
    }

    fn table(&self, text: &mut String) {
        let oracle = self
            .comparison
            .of(System::Oracle)
            .map_or(0.0, |summary| summary.ttft_p90_s);
        let slo = format!("in {:.3} s", self.plan.slo.as_secs_f64());
        let slo = slo.replace(".000", "");
        let _ = writeln!(
            text,
            "{:<18} {:>10} {:>9} {:>6} {:>9} {:>9} {:>9} {:>8} {:>10}",
            "policy",
            "tokens/s",
            "answers/s",
            "hits",
            "TTFT p50",
            "TTFT p90",
            slo,
            "failed",
            "to oracle"
        );
        for SystemFigures { system, summary } in &self.comparison.rows {
            let distance = if oracle > 0.0 && summary.requests > summary.failed {
                format!("{:.2}x", summary.ttft_p90_s / oracle)
            } else {
                "-".to_owned()
            };
            let _ = writeln!(
                text,
                "{:<18} {:>10.0} {:>9.2} {:>5.1}% {:>7.2} s {:>7.2} s {:>8.1}% {:>8} {:>10}",
                system.as_str(),
                summary.throughput_tokens_per_s,
                summary.throughput_requests_per_s,
                summary.hit_ratio * 100.0,
                summary.ttft_p50_s,
                summary.ttft_p90_s,
                summary.slo_attainment * 100.0,
                summary.failed,
                distance,
            );
        }
        let _ = writeln!(
            text,
            "\nTTFT: from sending to the first token, at the client. To oracle: the 90th percentile next to that of a balancer that \
             sees into the engines."
        );
        if self.plan.push != Push::Blind {
            let _ = writeln!(
                text,
                "{BASELINE}, too, holds requests back here (--push); most load balancers do not: --push blind shows them."
            );
        }
    }

    fn advice(&self, text: &mut String) {
        let (Some(best), Some(baseline)) = (
            self.comparison.best,
            self.comparison.of(System::Policy(BASELINE)),
        ) else {
            text.push_str("No request was answered: the requests do not fit the engine, or the trace is empty after its warm-up.\n");
            return;
        };
        let Some(summary) = self.comparison.of(System::Policy(best)) else {
            return;
        };
        let _ = writeln!(
            text,
            "Use {best}: {:.1} % of the requests within {:.1} s ({BASELINE}: {:.1} %), TTFT p90 {:.2} s ({:.2} s).",
            summary.slo_attainment * 100.0,
            self.plan.slo.as_secs_f64(),
            baseline.slo_attainment * 100.0,
            summary.ttft_p90_s,
            baseline.ttft_p90_s,
        );
        self.nothing_to_choose(text);
        let _ = match self.saving {
            Some(saving) => self.saved(saving, text),
            None if best == BASELINE => {
                writeln!(text, "No other policy serves this traffic better.")
            }
            None => writeln!(
                text,
                "What it would save in replicas cannot be said: {BASELINE} is as good or better in something, or the replicas differ."
            ),
        };
    }

    fn saved(&self, saving: &Savings, text: &mut String) -> core::fmt::Result {
        let slo_s = self.plan.slo.as_secs_f64();
        let figures = |summary: &Summary| {
            format!(
                "TTFT p90 {:.2} s, {:.1} % within {slo_s:.1} s",
                summary.ttft_p90_s,
                summary.slo_attainment * 100.0
            )
        };
        let share = saving.share() * 100.0;
        match saving.baseline_replicas {
            Some(without) => writeln!(
                text,
                "It saves {share:.0} % of the replicas: {} do at least what {without} do under {BASELINE} ({}; {BASELINE}: {}).",
                saving.replicas,
                figures(&saving.policy),
                figures(&saving.baseline),
            ),
            None => writeln!(
                text,
                "It saves more than {share:.0} % of the replicas: {BASELINE} is not as good even with {} instead of {} ({}).",
                saving.tried,
                saving.replicas,
                figures(&saving.baseline),
            ),
        }
    }

    /// A fleet that is never busy says nothing about policies.
    fn nothing_to_choose(&self, text: &mut String) {
        let of = |row: &SystemFigures| match row.system {
            System::Policy(_) => Some(row.summary.ttft_p90_s),
            System::Oracle => None,
        };
        let times = || self.comparison.rows.iter().filter_map(of);
        let (least, most) = (
            times().fold(f64::MAX, f64::min),
            times().fold(0.0, f64::max),
        );
        if most <= least * CLOSE {
            text.push_str(
                "All policies are within 5 % of each other: the fleet has time for everything. Look again with a smaller one \
                 (--replicas) or more traffic (--speed-up, --rate).\n",
            );
        }
    }
}
