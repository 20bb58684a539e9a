//! The result of a comparison as terminal text and as JSON.

use core::time::Duration;

use isotherm_report::number::percent;
use isotherm_report::{Section, Table};
use isotherm_router::Push;
use serde::Serialize;

use super::saving::Savings;
use super::{BASELINE, Comparison, Plan, System, SystemFigures};
use crate::summary::{GOODPUT_SLOS, Summary};

/// Ratio of p90 TTFT below which two policies count as equal.
const CLOSE: f64 = 1.05;

/// Report of a comparison.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// Input of the comparison.
    pub plan: &'a Plan,
    /// Result of the comparison.
    pub comparison: &'a Comparison,
    /// Replicas that the best policy saves.
    pub saving: Option<Savings>,
}

#[derive(Serialize)]
struct ReportData<'a> {
    workload: &'a str,
    requests: usize,
    fleet: String,
    replicas: usize,
    slo_s: f64,
    seed: u64,
    systems: &'a [SystemFigures],
    use_policy: Option<&'a str>,
    saving: Option<&'a Savings>,
    saved_share: Option<f64>,
}

/// A time in seconds, which is infinite where too many requests failed.
fn seconds(time_s: f64) -> String {
    if time_s.is_finite() {
        format!("{time_s:.2} s")
    } else {
        "∞".to_owned()
    }
}

impl Report<'_> {
    /// The comparison as JSON.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(&ReportData {
            workload: &self.plan.workload.name,
            requests: self.plan.workload.requests(),
            fleet: self.plan.fleet.describe(),
            replicas: self.plan.fleet.replicas(),
            slo_s: self.plan.slo.as_secs_f64(),
            seed: self.plan.seed,
            systems: &self.comparison.rows,
            use_policy: self.comparison.best.map(Into::into),
            saving: self.saving.as_ref(),
            saved_share: self.saving.as_ref().map(Savings::share),
        })
    }

    /// The table and the advice, as terminal text.
    pub fn text(&self) -> String {
        let advice = self
            .advice()
            .into_iter()
            .fold(Section::new(""), Section::text);
        let mut table = Section::new("").table(self.table()).text(
            "TTFT: from sending to the first token, at the client; infinite for a request that failed. In 1 s: the share of the \
             requests with their first token within it. To oracle: the 90th percentile next to that of a balancer that sees into \
             the engines.",
        );
        if self.plan.push != Push::Blind {
            table = table.text(format!(
                "{BASELINE}, too, holds requests back here (--push); most load balancers do not: --push blind shows them."
            ));
        }
        let title = format!("{}: comparison of policies", self.plan.workload.name);
        isotherm_report::Report::new(title, [table, advice]).text()
    }

    fn table(&self) -> Table {
        let oracle = self.comparison.of(System::Oracle);
        let oracle = oracle.map_or(0.0, |summary| summary.ttft_p90_s);
        let slos = self.slos();
        let before = ["policy", "tokens/s", "answers/s", "hits"].map(str::to_owned);
        let times = ["TTFT p50", "TTFT p90", "TTFT p99"].map(str::to_owned);
        let shares = slos
            .iter()
            .map(|slo| format!("in {:.3} s", slo.as_secs_f64()).replace(".000", ""));
        let after = ["failed", "to oracle"].map(str::to_owned);
        let columns = before.into_iter().chain(times).chain(shares).chain(after);
        Table::new(columns).with_rows(self.comparison.rows.iter().map(|row| {
            let summary = &row.summary;
            let to_oracle = summary.ttft_p90_s / oracle;
            let to_oracle = if to_oracle.is_finite() && summary.requests > summary.failed {
                format!("{to_oracle:.2}x")
            } else {
                "-".to_owned()
            };
            let before = [
                row.system.as_str().to_owned(),
                format!("{:.0}", summary.throughput_tokens_per_s),
                format!("{:.2}", summary.throughput_requests_per_s),
                percent(summary.hit_ratio),
                seconds(summary.ttft_p50_s),
                seconds(summary.ttft_p90_s),
                seconds(summary.ttft_p99_s),
            ];
            let shares = slos
                .iter()
                .map(|slo| percent(self.share_within(summary, *slo)));
            let after = [summary.failed.to_string(), to_oracle];
            before.into_iter().chain(shares).chain(after)
        }))
    }

    /// The share of requests within an objective of the table.
    fn share_within(&self, summary: &Summary, slo: Duration) -> f64 {
        if slo == self.plan.slo {
            summary.slo_attainment
        } else {
            summary.share_within(slo).unwrap_or(f64::NAN)
        }
    }

    /// The objectives of the table: the fixed ones and the plan's own.
    fn slos(&self) -> Vec<Duration> {
        let mut slos = Vec::from(GOODPUT_SLOS);
        slos.push(self.plan.slo);
        slos.sort_unstable();
        slos.dedup();
        slos
    }

    fn advice(&self) -> Vec<String> {
        let baseline = self.comparison.of(System::Policy(BASELINE));
        let (Some(best), Some(baseline)) = (self.comparison.best, baseline) else {
            let text = "No request was answered: the requests do not fit the engine, or the trace is empty after its warm-up.";
            return vec![text.to_owned()];
        };
        let Some(summary) = self.comparison.of(System::Policy(best)) else {
            return Vec::new();
        };
        let mut advice = vec![format!(
            "Use {best}: {:.1} % of the requests within {:.1} s ({BASELINE}: {:.1} %), TTFT p90 {} ({}).",
            summary.slo_attainment * 100.0,
            self.plan.slo.as_secs_f64(),
            baseline.slo_attainment * 100.0,
            seconds(summary.ttft_p90_s),
            seconds(baseline.ttft_p90_s),
        )];
        if self.is_idle() {
            advice.push("All policies are within 5 % of each other: the fleet has time for everything. Look again with a smaller fleet \
                 (--replicas) or more traffic (--speed-up, --rate).".to_owned());
        }
        advice.push(match &self.saving {
            Some(saving) => self.saved(saving),
            None if best == BASELINE => "No other policy serves this traffic better.".to_owned(),
            None => format!(
                "The number of replicas that it would save is unknown: {BASELINE} is as good or better in some figure, or the replicas differ."
            ),
        });
        advice
    }

    fn saved(&self, saving: &Savings) -> String {
        let slo_s = self.plan.slo.as_secs_f64();
        let figures = |summary: &Summary| {
            format!(
                "TTFT p90 {}, {:.1} % within {slo_s:.1} s",
                seconds(summary.ttft_p90_s),
                summary.slo_attainment * 100.0
            )
        };
        let share = saving.share() * 100.0;
        match saving.baseline_replicas {
            Some(without) => format!(
                "It saves {share:.0} % of the replicas: {} do at least what {without} do under {BASELINE} ({}; {BASELINE}: {}).",
                saving.replicas,
                figures(&saving.policy),
                figures(&saving.baseline),
            ),
            None => format!(
                "It saves more than {share:.0} % of the replicas: {BASELINE} is not as good even with {} instead of {} ({}).",
                saving.tried,
                saving.replicas,
                figures(&saving.baseline),
            ),
        }
    }

    /// Whether all policies are about as good: a fleet that is never busy cannot tell them apart.
    fn is_idle(&self) -> bool {
        let policies = self.comparison.rows.iter();
        let policies = policies.filter(|row| row.system != System::Oracle);
        let p90s = policies.map(|row| row.summary.ttft_p90_s);
        let most = p90s.clone().fold(0.0, f64::max);
        most.is_finite() && most <= p90s.fold(f64::MAX, f64::min) * CLOSE
    }
}
