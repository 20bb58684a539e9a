//! `GET /api/history`: ten minutes of each pool.

use axum::extract::State;
use axum::response::Json;

use super::error::ApiError;
use super::pools::{PoolQueryResult, find_all};
use super::{AdminState, view};
use crate::clock::millis;
use crate::pool::{HistorySample, Pool, SAMPLE_INTERVAL};

pub(super) async fn show(
    State(admin): AdminState,
    query: PoolQueryResult,
) -> Result<Json<Vec<view::PoolHistoryView>>, ApiError> {
    let pools = find_all(&admin.pool_registry, query?.pool.as_deref())?;
    Ok(Json(pools.iter().map(|pool| history_view(pool)).collect()))
}

fn history_view(pool: &Pool) -> view::PoolHistoryView {
    let samples = pool.history().samples();
    view::PoolHistoryView {
        pool: pool.name().to_string(),
        interval_ms: millis(SAMPLE_INTERVAL),
        samples: samples.into_iter().map(sample_view).collect(),
    }
}

fn sample_view(sample: HistorySample) -> view::SampleView {
    let decisions = sample.decisions.into_iter();
    view::SampleView {
        time_unix_ms: sample.time_unix_ms,
        seconds: sample.seconds,
        decisions: decisions
            .map(|(reason, count)| (reason.to_owned(), count))
            .collect(),
        rejected: sample.rejected,
        failed: sample.failed,
        prompt_tokens: sample.prompt_tokens,
        cached_tokens: sample.cached_tokens,
        ttft_p50_ms: sample.ttft_p50_ms,
        ttft_p95_ms: sample.ttft_p95_ms,
        in_flight: sample.in_flight,
        waiting: sample.waiting,
    }
}
