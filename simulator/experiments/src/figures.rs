//! Figures of a run that experiments compare, as functions of its row.

use crate::rows::Row;

/// A figure of a run.
pub(crate) type Figure = fn(&Row) -> f64;

/// Share of requests whose first token came within the objective.
pub(crate) fn attainment(row: &Row) -> f64 {
    row.summary.slo_attainment
}

/// Median time to the first token, in seconds.
pub(crate) fn p50(row: &Row) -> f64 {
    row.summary.ttft_p50_s
}

/// 90th percentile of the time to the first token, in seconds.
pub(crate) fn p90(row: &Row) -> f64 {
    row.summary.ttft_p90_s
}

/// Share of prompt tokens found in caches.
pub(crate) fn hits(row: &Row) -> f64 {
    row.summary.hit_ratio
}

/// Imbalance: standard deviation over mean of the prompt tokens that replicas have yet to compute.
pub(crate) fn cv(row: &Row) -> f64 {
    row.summary.load_cv
}

/// Prompt and output tokens a second.
pub(crate) fn tokens(row: &Row) -> f64 {
    row.summary.throughput_tokens_per_s
}

/// A figure of [`crate::load::figures`]; `NaN` when the row has none of that name.
pub(crate) fn load(name: &'static str) -> impl Fn(&Row) -> f64 + Copy {
    move |row| row.more.get(name).copied().unwrap_or(f64::NAN)
}
