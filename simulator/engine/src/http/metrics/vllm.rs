//! vLLM's names and labels, as a real 0.32 server writes them. Left out: what an engine without a GPU has no value for.

use super::histogram::Histograms;
use super::page::{Page, escape, float};
use crate::http::replica::Settings;
use crate::model::Stats;

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of requests are far below 2^52"
)]
pub(super) fn render(settings: &Settings, stats: &Stats, histograms: &Histograms) -> String {
    let labels = format!("engine=\"0\",model_name=\"{}\"", escape(&settings.model));
    let labels = labels.as_str();
    let totals = &stats.totals;
    let mut page = Page::default();
    page.gauge(
        "vllm:num_requests_running",
        labels,
        "Number of requests in model execution batches.",
        stats.running as f64,
    );
    page.gauge(
        "vllm:num_requests_waiting",
        labels,
        "Number of requests waiting to be processed.",
        stats.waiting as f64,
    );
    let name = "vllm:num_requests_waiting_by_reason";
    page.metric(name, "gauge", "Number of waiting requests by reason.");
    page.sample(
        name,
        &format!("{labels},reason=\"capacity\""),
        stats.waiting as f64,
    );
    page.sample(name, &format!("{labels},reason=\"deferred\""), 0.0);
    page.gauge(
        "vllm:kv_cache_usage_perc",
        labels,
        "KV-cache usage. 1 means 100 percent usage.",
        stats.kv_usage(),
    );
    #[rustfmt::skip]
    let counters = [
        ("prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.", totals.prefix_query_tokens),
        ("prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.", totals.prefix_hit_tokens),
        ("num_preemptions_total", "Cumulative number of preemption from the engine.", totals.preemptions),
        ("prompt_tokens_total", "Number of prefill tokens processed.", totals.prompt_tokens),
        ("generation_tokens_total", "Number of generation tokens processed.", totals.generation_tokens),
    ];
    for (name, help, value) in counters {
        page.counter(&format!("vllm:{name}"), labels, help, value);
    }
    let name = "vllm:request_success_total";
    page.metric(name, "counter", "Count of successfully processed requests.");
    for (reason, count) in [
        ("stop", totals.finished),
        ("abort", totals.aborted),
        ("error", totals.rejected),
    ] {
        let labels = format!(
            "engine=\"0\",finished_reason=\"{reason}\",model_name=\"{}\"",
            escape(&settings.model)
        );
        page.sample(name, &labels, float(count));
    }
    #[rustfmt::skip]
    let histograms = [
        ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", &histograms.time_to_first_token),
        ("request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.", &histograms.time_per_output_token),
        ("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", &histograms.end_to_end),
        ("request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", &histograms.queue_time),
    ];
    for (name, help, histogram) in histograms {
        page.histogram(&format!("vllm:{name}"), labels, help, histogram);
    }
    let config = &settings.config;
    let cache = format!(
        "block_size=\"{}\",cache_dtype=\"auto\",enable_prefix_caching=\"True\",engine=\"0\",kv_cache_size_tokens=\"{}\",\
         num_gpu_blocks=\"{}\"",
        config.block_tokens,
        u64::from(config.blocks) * u64::from(config.block_tokens),
        config.blocks,
    );
    page.gauge(
        "vllm:cache_config_info",
        &cache,
        "Information of the LLMEngine CacheConfig",
        1.0,
    );
    page.into_text()
}
