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
    let capacity = f64::from(config.blocks) * f64::from(config.block_tokens);
    let used = f64::from(stats.blocks_held) * f64::from(config.block_tokens);
    #[rustfmt::skip]
    let gauges = [
        ("num_running_reqs", "The number of running requests.", stats.running as f64),
        ("num_queue_reqs", "The number of requests in the waiting queue.", stats.waiting as f64),
        ("token_usage", "The token usage.", stats.kv_usage()),
        ("num_used_tokens", "The number of used tokens.", used),
        ("cache_hit_rate", "The prefix cache hit rate.", hit_rate(stats)),
        ("page_size", "Tokens in a page.", f64::from(config.block_tokens)),
        ("num_pages", "Pages in the KV cache.", f64::from(config.blocks)),
        ("max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.", capacity),
    ];
    for (name, help, value) in gauges {
        page.gauge(&format!("sglang:{name}"), labels, help, value);
    }
    #[rustfmt::skip]
    let counters = [
        ("prompt_tokens_total", "Number of prefill tokens processed.", totals.prompt_tokens),
        ("generation_tokens_total", "Number of generation tokens processed.", totals.generation_tokens),
        ("cached_tokens_total", "Number of cached prompt tokens.", totals.prefix_hit_tokens),
        ("num_requests_total", "Number of requests processed.", totals.finished),
    ];
    for (name, help, value) in counters {
        page.counter(&format!("sglang:{name}"), labels, help, value);
    }
    #[rustfmt::skip]
    let histograms = [
        ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", &histograms.time_to_first_token),
        ("e2e_request_latency_seconds", "Histogram of End-to-end request latency in seconds", &histograms.end_to_end),
    ];
    for (name, help, histogram) in histograms {
        page.histogram(&format!("sglang:{name}"), labels, help, histogram);
    }
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
