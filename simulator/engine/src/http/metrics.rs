//! `GET /metrics`, in Prometheus' text format, with the names and labels of vLLM 0.32 or SGLang.
//!
//! The page has the gauges and counters of the engine model, and the sums and counts of the histograms of durations. It omits
//! their buckets, and metrics that need a GPU. Durations are those of the clients' clock: an engine of twice the speed reports
//! half of each.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use super::replica::{MetricsDialect, Replica, Settings};
use crate::model::{AdapterId, Durations, Stats};

/// The metrics page.
pub async fn page(State(replica): State<Arc<Replica>>) -> impl IntoResponse {
    let (settings, stats) = (&replica.settings, replica.stats());
    let page = match settings.metrics {
        MetricsDialect::Vllm => {
            vllm(settings, &stats) + &start(&replica) + &adapter_series(&replica)
        }
        MetricsDialect::Sglang => sglang(settings, &stats),
    };
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], page)
}

/// The start of the process. SGLang's page has none, because several processes write it.
fn start(replica: &Replica) -> String {
    let seconds = count(replica.started_unix_ms) / 1e3;
    format!("# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {seconds:?}\n")
}

fn vllm(settings: &Settings, stats: &Stats) -> String {
    let model = escape(&settings.model);
    let labels = format!(r#"engine="0",model_name="{model}""#);
    let waiting = stats.waiting;
    let (config, totals) = (&settings.config, &stats.totals);
    let (block_tokens, blocks) = (config.block_tokens, config.blocks);
    let capacity = u64::from(blocks) * u64::from(block_tokens);
    let gauges = [
        ("num_requests_running", count(stats.running as u64)),
        ("num_requests_waiting", count(waiting as u64)),
        ("kv_cache_usage_perc", stats.kv_usage()),
    ];
    let counters = [
        (
            "prefix_cache_queries_total",
            count(totals.prefix_query_tokens),
        ),
        ("prefix_cache_hits_total", count(totals.prefix_hit_tokens)),
        ("num_preemptions_total", count(totals.preemptions)),
        ("prompt_tokens_total", count(totals.prompt_tokens)),
        ("generation_tokens_total", count(totals.generation_tokens)),
    ];
    let durations = [
        ("time_to_first_token_seconds", totals.first_tokens),
        ("request_queue_time_seconds", totals.queued),
        ("request_prefill_time_seconds", totals.prefill),
        ("request_decode_time_seconds", totals.decode),
    ];
    let ends = [
        ("stop", totals.finished),
        ("abort", totals.aborted),
        ("error", totals.rejected),
    ];
    let ends = ends.map(|(reason, requests)| {
        format!(
            r#"vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="{model}"}} {requests}.0
"#
        )
    });
    format!(
        r#"{gauges}# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{{{labels},reason="capacity"}} {waiting}.0
vllm:num_requests_waiting_by_reason{{{labels},reason="deferred"}} 0.0
{counters}{durations}# TYPE vllm:request_success_total counter
{ends}# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{{block_size="{block_tokens}",cache_dtype="auto",enable_prefix_caching="True",engine="0",kv_cache_size_tokens="{capacity}",num_gpu_blocks="{blocks}"}} 1.0
"#,
        gauges = lines("vllm", "gauge", &labels, gauges),
        counters = lines("vllm", "counter", &labels, counters),
        durations = histograms("vllm", &labels, settings.speed, durations),
        ends = ends.concat(),
    )
}

/// The series of adapters, as vLLM writes them: its value is the time of its last change, and old ones stay on the page.
fn adapter_series(replica: &Replica) -> String {
    let settings = &replica.settings;
    if settings.adapters.is_empty() {
        return String::new();
    }
    let name = |id: &AdapterId| {
        let name = settings.adapters.get(id.0 as usize);
        name.map_or_else(String::new, |name| escape(name))
    };
    let names = |ids: &[AdapterId]| ids.iter().map(name).collect::<Vec<_>>().join(",");
    let used = replica.with_core(|core| core.engine.adapter_use());
    let slots = settings.config.adapters.slots;
    let (running, waiting) = (names(&used.running), names(&used.waiting));
    let labels = format!(
        r#"max_lora="{slots}",running_lora_adapters="{running}",waiting_lora_adapters="{waiting}""#
    );
    let series = replica.adapter_series.record(labels);
    let lines = series
        .iter()
        .map(|(labels, seconds)| format!("vllm:lora_requests_info{{{labels}}} {seconds:?}\n"));
    let kind = "# TYPE vllm:lora_requests_info gauge\n".to_owned();
    lines.fold(kind, |page, line| page + &line)
}

fn sglang(settings: &Settings, stats: &Stats) -> String {
    let model = escape(&settings.model);
    let labels = format!(r#"engine_type="unified",model_name="{model}",tp_rank="0""#);
    let (config, totals) = (&settings.config, &stats.totals);
    let tokens = |blocks: u32| f64::from(blocks) * f64::from(config.block_tokens);
    let hits = count(totals.prefix_hit_tokens);
    let gauges = [
        ("num_running_reqs", count(stats.running as u64)),
        ("num_queue_reqs", count(stats.waiting as u64)),
        ("token_usage", stats.kv_usage()),
        ("num_used_tokens", tokens(stats.blocks_held)),
        (
            "cache_hit_rate",
            hits / count(totals.prefix_query_tokens.max(1)),
        ),
        ("page_size", f64::from(config.block_tokens)),
        ("num_pages", f64::from(config.blocks)),
        ("max_total_num_tokens", tokens(config.blocks)),
    ];
    let counters = [
        ("prompt_tokens_total", count(totals.prompt_tokens)),
        ("generation_tokens_total", count(totals.generation_tokens)),
        ("cached_tokens_total", hits),
        ("num_requests_total", count(totals.finished)),
    ];
    let prefill_labels = format!(r#"{labels},stage="prefill_forward""#);
    let prefill = [("per_stage_req_latency_seconds", totals.prefill)];
    let inter_token = Durations {
        count: totals.generation_tokens,
        ..totals.decode
    };
    let end_to_end = Durations {
        sum_ns: totals.queued.sum_ns + totals.prefill.sum_ns + totals.decode.sum_ns,
        ..totals.decode
    };
    let durations = [
        ("time_to_first_token_seconds", totals.first_tokens),
        ("inter_token_latency_seconds", inter_token),
        ("e2e_request_latency_seconds", end_to_end),
        ("queue_time_seconds", totals.queued),
    ];
    let speed = settings.speed;
    lines("sglang", "gauge", &labels, gauges)
        + &lines("sglang", "counter", &labels, counters)
        + &histograms("sglang", &labels, speed, durations)
        + &histograms("sglang", &prefill_labels, speed, prefill)
}

/// The sum and the count of each histogram, in seconds of the clients' clock.
fn histograms<const N: usize>(
    engine: &str,
    labels: &str,
    speed: f64,
    durations: [(&str, Durations); N],
) -> String {
    let lines = |(name, durations): (&str, Durations)| {
        let seconds = count(durations.sum_ns) / 1e9 / speed;
        let number = count(durations.count);
        format!(
            "# TYPE {engine}:{name} histogram\n{engine}:{name}_count{{{labels}}} {number:?}\n\
             {engine}:{name}_sum{{{labels}}} {seconds:?}\n"
        )
    };
    durations.map(lines).concat()
}

/// The type and the value of each metric. As Python's client does, the page writes every value with a decimal point.
fn lines<const N: usize>(
    engine: &str,
    kind: &str,
    labels: &str,
    metrics: [(&str, f64); N],
) -> String {
    let line = |(name, value): (&str, f64)| {
        format!("# TYPE {engine}:{name} {kind}\n{engine}:{name}{{{labels}}} {value:?}\n")
    };
    metrics.map(line).concat()
}

fn count(count: u64) -> f64 {
    count as f64
}

/// The value of a label, escaped.
fn escape(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    value.replace('\n', "\\n")
}
