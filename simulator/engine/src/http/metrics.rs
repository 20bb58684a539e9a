//! `GET /metrics`, in Prometheus' text format, with the names and labels of vLLM 0.32 or SGLang.
//!
//! The page has the gauges and counters of the engine model. It omits metrics that need a GPU, and latency histograms: clients
//! measure latencies themselves.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use super::replica::{MetricsDialect, Replica, Settings};
use crate::model::Stats;

/// The metrics page.
pub async fn page(State(replica): State<Arc<Replica>>) -> impl IntoResponse {
    let (settings, stats) = (&replica.settings, replica.stats());
    let page = match settings.metrics {
        MetricsDialect::Vllm => vllm(settings, &stats),
        MetricsDialect::Sglang => sglang(settings, &stats),
    };
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], page)
}

fn vllm(settings: &Settings, stats: &Stats) -> String {
    let model = escape(&settings.model);
    let labels = format!(r#"engine="0",model_name="{model}""#);
    let success = |reason| {
        format!(
            r#"vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="{model}"}}"#
        )
    };
    let (stop, abort, error) = (success("stop"), success("abort"), success("error"));
    let (config, totals) = (&settings.config, &stats.totals);
    let (block_tokens, blocks) = (config.block_tokens, config.blocks);
    let capacity = u64::from(blocks) * u64::from(block_tokens);
    // As Python's client does, the page writes every value with a decimal point.
    format!(
        r#"# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{{labels}}} {running}.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{{labels}}} {waiting}.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{{{labels},reason="capacity"}} {waiting}.0
vllm:num_requests_waiting_by_reason{{{labels},reason="deferred"}} 0.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{{labels}}} {kv_usage:?}
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{{{labels}}} {queries}.0
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{{{labels}}} {hits}.0
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{{{labels}}} {preemptions}.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{{labels}}} {prompt_tokens}.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{{labels}}} {generation_tokens}.0
# TYPE vllm:request_success_total counter
{stop} {finished}.0
{abort} {aborted}.0
{error} {rejected}.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{{block_size="{block_tokens}",cache_dtype="auto",enable_prefix_caching="True",engine="0",kv_cache_size_tokens="{capacity}",num_gpu_blocks="{blocks}"}} 1.0
"#,
        running = stats.running,
        waiting = stats.waiting,
        kv_usage = stats.kv_usage(),
        queries = totals.prefix_query_tokens,
        hits = totals.prefix_hit_tokens,
        preemptions = totals.preemptions,
        prompt_tokens = totals.prompt_tokens,
        generation_tokens = totals.generation_tokens,
        finished = totals.finished,
        aborted = totals.aborted,
        rejected = totals.rejected,
    )
}

fn sglang(settings: &Settings, stats: &Stats) -> String {
    let model = escape(&settings.model);
    let labels = format!(r#"engine_type="unified",model_name="{model}",tp_rank="0""#);
    let (config, totals) = (&settings.config, &stats.totals);
    let block_tokens = config.block_tokens;
    let tokens = |blocks: u32| u64::from(blocks) * u64::from(block_tokens);
    format!(
        "# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{{{labels}}} {running}.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{{{labels}}} {waiting}.0
# TYPE sglang:token_usage gauge
sglang:token_usage{{{labels}}} {kv_usage:?}
# TYPE sglang:num_used_tokens gauge
sglang:num_used_tokens{{{labels}}} {used}.0
# TYPE sglang:cache_hit_rate gauge
sglang:cache_hit_rate{{{labels}}} {hit_rate:?}
# TYPE sglang:page_size gauge
sglang:page_size{{{labels}}} {block_tokens}.0
# TYPE sglang:num_pages gauge
sglang:num_pages{{{labels}}} {blocks}.0
# TYPE sglang:max_total_num_tokens gauge
sglang:max_total_num_tokens{{{labels}}} {capacity}.0
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{{{labels}}} {prompt_tokens}.0
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{{{labels}}} {generation_tokens}.0
# TYPE sglang:cached_tokens_total counter
sglang:cached_tokens_total{{{labels}}} {hits}.0
# TYPE sglang:num_requests_total counter
sglang:num_requests_total{{{labels}}} {finished}.0
",
        running = stats.running,
        waiting = stats.waiting,
        kv_usage = stats.kv_usage(),
        used = tokens(stats.blocks_held),
        hit_rate = hit_rate(stats),
        blocks = config.blocks,
        capacity = tokens(config.blocks),
        prompt_tokens = totals.prompt_tokens,
        generation_tokens = totals.generation_tokens,
        hits = totals.prefix_hit_tokens,
        finished = totals.finished,
    )
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of tokens are far below 2^52"
)]
fn hit_rate(stats: &Stats) -> f64 {
    let queries = stats.totals.prefix_query_tokens.max(1);
    stats.totals.prefix_hit_tokens as f64 / queries as f64
}

/// The value of a label, escaped.
fn escape(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    value.replace('\n', "\\n")
}
