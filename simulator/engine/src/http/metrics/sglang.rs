//! SGLang's names, and its light load endpoint.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::histogram::Histograms;
use super::page::{Page, escape};
use crate::http::replica::{Replica, Settings};
use crate::model::Stats;

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of requests and tokens are far below 2^52"
)]
pub(super) fn render(settings: &Settings, stats: &Stats, histograms: &Histograms) -> String {
    let labels = format!(
        "engine_type=\"unified\",model_name=\"{}\",tp_rank=\"0\"",
        escape(&settings.model)
    );
    let labels = labels.as_str();
    let config = &settings.config;
    let totals = &stats.totals;
    let mut page = Page::default();
    page.gauge(
        "sglang:num_running_reqs",
        labels,
        "The number of running requests.",
        stats.running as f64,
    );
    page.gauge(
        "sglang:num_queue_reqs",
        labels,
        "The number of requests in the waiting queue.",
        stats.waiting as f64,
    );
    page.gauge(
        "sglang:token_usage",
        labels,
        "The token usage.",
        stats.kv_usage(),
    );
    page.gauge(
        "sglang:num_used_tokens",
        labels,
        "The number of used tokens.",
        f64::from(stats.blocks_held) * f64::from(config.block_tokens),
    );
    page.gauge(
        "sglang:cache_hit_rate",
        labels,
        "The prefix cache hit rate.",
        hit_rate(stats),
    );
    page.gauge(
        "sglang:page_size",
        labels,
        "Tokens in a page.",
        f64::from(config.block_tokens),
    );
    page.gauge(
        "sglang:num_pages",
        labels,
        "Pages in the KV cache.",
        f64::from(config.blocks),
    );
    page.gauge(
        "sglang:max_total_num_tokens",
        labels,
        "Maximum total number of tokens in the KV cache pool.",
        f64::from(config.blocks) * f64::from(config.block_tokens),
    );
    page.counter(
        "sglang:prompt_tokens_total",
        labels,
        "Number of prefill tokens processed.",
        totals.prompt_tokens,
    );
    page.counter(
        "sglang:generation_tokens_total",
        labels,
        "Number of generation tokens processed.",
        totals.generation_tokens,
    );
    page.counter(
        "sglang:cached_tokens_total",
        labels,
        "Number of cached prompt tokens.",
        totals.prefix_hit_tokens,
    );
    page.counter(
        "sglang:num_requests_total",
        labels,
        "Number of requests processed.",
        totals.finished,
    );
    page.histogram(
        "sglang:time_to_first_token_seconds",
        labels,
        "Histogram of time to first token in seconds.",
        &histograms.time_to_first_token,
    );
    page.histogram(
        "sglang:e2e_request_latency_seconds",
        labels,
        "Histogram of End-to-end request latency in seconds",
        &histograms.end_to_end,
    );
    page.into_text()
}

/// `GET /v1/loads`
pub async fn loads(State(replica): State<Arc<Replica>>) -> Json<Value> {
    let stats = replica.stats();
    let config = &replica.settings.config;
    let tokens = u64::from(stats.blocks_held) * u64::from(config.block_tokens);
    Json(json!({
        "version": "isotherm-engine",
        "dp_rank_count": 1,
        "loads": [{
            "dp_rank": 0,
            "num_running_reqs": stats.running,
            "num_waiting_reqs": stats.waiting,
            "num_total_reqs": stats.running + stats.waiting,
            "num_used_tokens": tokens,
            "max_total_num_tokens": u64::from(config.blocks) * u64::from(config.block_tokens),
            "token_usage": stats.kv_usage(),
            "cache_hit_rate": hit_rate(&stats),
            "max_running_requests": config.sequences_max,
            "queues": {"waiting": stats.waiting, "grammar": 0, "paused": 0, "retracted": 0},
        }],
        "aggregate": {"total_running_reqs": stats.running, "total_waiting_reqs": stats.waiting, "total_reqs": stats.running + stats.waiting},
    }))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of tokens are far below 2^52"
)]
fn hit_rate(stats: &Stats) -> f64 {
    let totals = &stats.totals;
    if totals.prefix_query_tokens == 0 {
        return 0.0;
    }
    totals.prefix_hit_tokens as f64 / totals.prefix_query_tokens as f64
}
