//! A row, which has the figures of a run; and the name, the values and the presentation of each figure.

use std::collections::BTreeMap;

use isotherm_report::number::{percent, short};
use isotherm_simulator::Summary;
use serde::Serialize;
use serde_json::Value;

/// A run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Panel of the figure: mostly the workload.
    pub(crate) group: String,
    /// System under test.
    pub(crate) system: String,
    /// Value of the varied parameter, such as a rate or a number of replicas; zero when the group varies none.
    pub(crate) x: f64,
    /// Seed of the workload and of the run.
    pub(crate) seed: u64,
    /// Figures of the requests; none where requests were not played one by one.
    pub(crate) summary: Option<Summary>,
    /// Figures beyond the summary.
    pub(crate) more: BTreeMap<&'static str, f64>,
}

impl Row {
    /// Every figure by name, as in the CSV file.
    pub(crate) fn figures(&self) -> BTreeMap<String, f64> {
        let summary = serde_json::to_value(&self.summary).unwrap_or(Value::Null);
        let of_summary = summary.as_object().into_iter().flatten();
        let more = self.more.iter();
        of_summary
            // An infinite time is null in JSON.
            .map(|(name, value)| (name.clone(), value.as_f64().unwrap_or(f64::INFINITY)))
            .chain(more.map(|(name, value)| ((*name).to_owned(), *value)))
            .collect()
    }
}

/// A figure of a run, as conclusions and tables show it.
#[derive(Clone, Copy)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    /// Unit that tables name; empty where the values or the name have it.
    unit: &'static str,
    pub(crate) is_less_better: bool,
    pub(crate) format: fn(f64) -> String,
    values: Values,
}

#[derive(Clone, Copy)]
enum Values {
    Summary(fn(&Summary) -> f64),
    /// Entry of [`Row::more`].
    More(&'static str),
}

impl Figure {
    const fn new(name: &'static str, unit: &'static str, values: Values) -> Self {
        Self {
            name,
            unit,
            is_less_better: false,
            format: short,
            values,
        }
    }

    const fn number(name: &'static str, unit: &'static str, of: fn(&Summary) -> f64) -> Self {
        Self::new(name, unit, Values::Summary(of))
    }

    const fn share(name: &'static str, of: fn(&Summary) -> f64) -> Self {
        Self {
            format: percent,
            ..Self::number(name, "", of)
        }
    }

    const fn seconds(name: &'static str, of: fn(&Summary) -> f64) -> Self {
        Self {
            is_less_better: true,
            ..Self::number(name, "s", of)
        }
    }

    /// A figure beyond the summary.
    pub(crate) const fn more(
        name: &'static str,
        key: &'static str,
        format: fn(f64) -> String,
    ) -> Self {
        Self {
            format,
            ..Self::new(name, "", Values::More(key))
        }
    }

    /// A figure beyond the summary, of which less is better.
    pub(crate) const fn less(
        name: &'static str,
        key: &'static str,
        format: fn(f64) -> String,
    ) -> Self {
        Self {
            is_less_better: true,
            ..Self::more(name, key, format)
        }
    }

    /// Name of a column.
    pub(crate) fn column(&self) -> String {
        match self.unit {
            "" => self.name.to_owned(),
            unit => format!("{}, {unit}", self.name),
        }
    }

    /// Value of the figure in a run; `NaN` in a run without it.
    pub(crate) fn value(&self, row: &Row) -> f64 {
        match self.values {
            Values::Summary(of) => row.summary.as_ref().map_or(f64::NAN, of),
            Values::More(key) => row.more.get(key).copied().unwrap_or(f64::NAN),
        }
    }
}

pub(crate) const TOKENS: Figure =
    Figure::number("throughput", "tokens/s", |run| run.throughput_tokens_per_s);
pub(crate) const ATTAINMENT: Figure =
    Figure::share("requests within the SLO", |run| run.slo_attainment);
pub(crate) const HITS: Figure = Figure::share("cache hits", |run| run.hit_ratio);
pub(crate) const FORWARDED: Figure = Figure::share("forwarded", |run| run.forwarded_share);
pub(crate) const FAILED: Figure = Figure::number("failed", "", |run| run.failed as f64);
pub(crate) const REQUESTS: Figure = Figure::number("requests", "", |run| run.requests as f64);
/// Standard deviation over mean of the prompt tokens that replicas have yet to compute.
pub(crate) const CV: Figure = Figure {
    is_less_better: true,
    ..Figure::number("CV of pending prefill tokens", "", |run| run.load_cv)
};

pub(crate) const MEAN: Figure = Figure::seconds("mean TTFT", |run| run.ttft_mean_s);
pub(crate) const P50: Figure = Figure::seconds("p50 TTFT", |run| run.ttft_p50_s);
pub(crate) const P90: Figure = Figure::seconds("p90 TTFT", |run| run.ttft_p90_s);
pub(crate) const P99: Figure = Figure::seconds("p99 TTFT", |run| run.ttft_p99_s);
/// Requests a second within 1, 2, 5 and 10 s, whatever the objective of the policy is.
pub(crate) const GOODPUTS: [Figure; 4] = [
    Figure::number("goodput at 1 s", "requests/s", |run| run.goodput_1s_per_s),
    Figure::number("goodput at 2 s", "requests/s", |run| run.goodput_2s_per_s),
    Figure::number("goodput at 5 s", "requests/s", |run| run.goodput_5s_per_s),
    Figure::number("goodput at 10 s", "requests/s", |run| run.goodput_10s_per_s),
];
pub(crate) const E2E_P50: Figure = Figure::seconds("p50 end to end", |run| run.e2e_p50_s);
pub(crate) const E2E_P90: Figure = Figure::seconds("p90 end to end", |run| run.e2e_p90_s);
/// Percentiles 10, 25, 50, 75 and 90 of the time to first token, and its mean.
pub(crate) const TTFT: [Figure; 6] = [
    Figure::seconds("p10 TTFT", |run| run.ttft_p10_s),
    Figure::seconds("p25 TTFT", |run| run.ttft_p25_s),
    P50,
    Figure::seconds("p75 TTFT", |run| run.ttft_p75_s),
    P90,
    MEAN,
];
/// Percentiles 10, 25, 50, 75 and 90 of the time to the end of a response, and its mean.
pub(crate) const E2E: [Figure; 6] = [
    Figure::seconds("p10 end to end", |run| run.e2e_p10_s),
    Figure::seconds("p25 end to end", |run| run.e2e_p25_s),
    E2E_P50,
    Figure::seconds("p75 end to end", |run| run.e2e_p75_s),
    E2E_P90,
    Figure::seconds("mean end to end", |run| run.e2e_mean_s),
];

pub(crate) const BUSY: Figure = Figure::more("busy", "busy_share", percent);
pub(crate) const ENGINE_WAITING: Figure =
    Figure::more("waiting in engines", "engine_waiting_mean", short);
pub(crate) const ROUTER_WAITING: Figure =
    Figure::more("waiting in routers", "router_waiting_mean", short);
pub(crate) const WAITS_BESIDE_IDLE: Figure =
    Figure::more("waits beside an idle engine", "stranded_share", percent);
pub(crate) const MOST_OVER_MEAN: Figure = Figure::more(
    "most / mean outstanding",
    "outstanding_most_over_mean",
    short,
);
pub(crate) const PREEMPTIONS: Figure = Figure::more("preemptions", "preemptions", short);
