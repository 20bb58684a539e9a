//! The figures of a run that experiments compare, as what takes one from its row.

use super::rows::Row;

/// The share of requests whose first token came within the objective.
pub(super) fn attainment(row: &Row) -> f64 {
    row.summary.slo_attainment
}

/// Median time to first token, in seconds.
pub(super) fn p50(row: &Row) -> f64 {
    row.summary.ttft_p50_s
}

/// Its 90th percentile, in seconds.
pub(super) fn p90(row: &Row) -> f64 {
    row.summary.ttft_p90_s
}

/// The share of prompt tokens found in caches.
pub(super) fn hits(row: &Row) -> f64 {
    row.summary.hit_ratio
}

/// How unevenly the work lies: standard deviation over mean of the prompt tokens that replicas have yet to compute.
pub(super) fn cv(row: &Row) -> f64 {
    row.summary.load_cv
}

/// Prompt and output tokens a second.
pub(super) fn tokens(row: &Row) -> f64 {
    row.summary.throughput_tokens_per_s
}
