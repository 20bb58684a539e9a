//! The series from which the service reads each engine's counters.
//!
//! Engines count at different moments: vLLM counts a prompt at its first token and the time of its computation at the end of
//! the answer, SGLang and TensorRT-LLM count everything at the end. Sums over many requests agree; single requests do not.
//!
//! - vLLM: `prompt_tokens_total` includes what was cached. A KV connector finds tokens in addition to the local cache.
//! - SGLang: `prompt_tokens_total` includes what was cached; `cached_tokens_total` has a series for each place of the cache.
//!   A scheduler's histograms appear once for each tensor and pipeline rank.
//! - llama.cpp: `prompt_tokens_total` excludes what was cached, which versions since August 2026 count apart.
//! - TGI: the time of a batch's prefill, and no count of cached tokens.
//!
//! One series stands for one quantity. A sum that changes its series runs back, which looks like a restart, so no series replaces
//! another when it appears later. Sums and counts are enough for means, so histogram buckets are skipped.

use crate::config::Engine;

/// The quantity that a counter adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Counter {
    /// Start of the process, in seconds since 1970.
    Start,
    /// Tokens of prompts, cached ones included.
    PromptTokens,
    /// Tokens of prompts, without cached ones.
    ComputedTokens,
    /// Generated tokens.
    GenerationTokens,
    /// Prompt tokens looked up in the prefix cache.
    CacheQueries,
    /// Prompt tokens found there.
    CacheHits,
    /// Time from a request's first step to its first token.
    PrefillSeconds,
    /// Number of durations in [`Counter::PrefillSeconds`].
    PrefillCount,
    /// Time from a request's first token to its last one.
    DecodeSeconds,
    /// Number of durations in [`Counter::DecodeSeconds`].
    DecodeCount,
    /// Time that requests waited in the engine.
    QueueSeconds,
    /// Number of durations in [`Counter::QueueSeconds`].
    QueueCount,
    /// Time from a request's arrival in the engine to its first token.
    TtftSeconds,
    /// Number of durations in [`Counter::TtftSeconds`].
    TtftCount,
}

/// A series of a counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct CounterSeries {
    pub(super) name: &'static str,
    /// The label and value that distinguish it from other series of the name.
    pub(super) only: Option<(&'static str, &'static str)>,
    pub(super) counter: Counter,
}

/// The label of a tensor-parallel rank. The series of such ranks repeat each other.
pub(super) const TENSOR_RANK: &str = "tp_rank";
/// The label of a data-parallel rank, which has tensor-parallel ranks of its own.
pub(super) const DATA_RANK: &str = "dp_rank";

const fn series(name: &'static str, counter: Counter) -> CounterSeries {
    CounterSeries {
        name,
        only: None,
        counter,
    }
}

const fn of((label, value): (&'static str, &'static str), series: CounterSeries) -> CounterSeries {
    CounterSeries {
        only: Some((label, value)),
        ..series
    }
}

/// The start of a process, as the client libraries of Prometheus report it.
const START: CounterSeries = series("process_start_time_seconds", Counter::Start);

const VLLM: &[CounterSeries] = &[
    START,
    series("vllm:prompt_tokens_total", Counter::PromptTokens),
    series("vllm:generation_tokens_total", Counter::GenerationTokens),
    series("vllm:prefix_cache_queries_total", Counter::CacheQueries),
    series("vllm:prefix_cache_hits_total", Counter::CacheHits),
    series("vllm:external_prefix_cache_hits_total", Counter::CacheHits),
    series(
        "vllm:request_prefill_time_seconds_sum",
        Counter::PrefillSeconds,
    ),
    series(
        "vllm:request_prefill_time_seconds_count",
        Counter::PrefillCount,
    ),
    series(
        "vllm:request_decode_time_seconds_sum",
        Counter::DecodeSeconds,
    ),
    series(
        "vllm:request_decode_time_seconds_count",
        Counter::DecodeCount,
    ),
    series("vllm:request_queue_time_seconds_sum", Counter::QueueSeconds),
    series("vllm:request_queue_time_seconds_count", Counter::QueueCount),
    series("vllm:time_to_first_token_seconds_sum", Counter::TtftSeconds),
    series("vllm:time_to_first_token_seconds_count", Counter::TtftCount),
];

/// The label of a stage of SGLang's requests: all of a prompt's computation, chunks included.
const PREFILL_STAGE: (&str, &str) = ("stage", "prefill_forward");

const SGLANG: &[CounterSeries] = &[
    START,
    series("sglang:prompt_tokens_total", Counter::PromptTokens),
    series("sglang:generation_tokens_total", Counter::GenerationTokens),
    series("sglang:cached_tokens_total", Counter::CacheHits),
    of(
        PREFILL_STAGE,
        series(
            "sglang:per_stage_req_latency_seconds_sum",
            Counter::PrefillSeconds,
        ),
    ),
    of(
        PREFILL_STAGE,
        series(
            "sglang:per_stage_req_latency_seconds_count",
            Counter::PrefillCount,
        ),
    ),
    // The sum is the time after first tokens. The count is of tokens, so another histogram counts the requests.
    series(
        "sglang:inter_token_latency_seconds_sum",
        Counter::DecodeSeconds,
    ),
    series(
        "sglang:e2e_request_latency_seconds_count",
        Counter::DecodeCount,
    ),
    series("sglang:queue_time_seconds_sum", Counter::QueueSeconds),
    series("sglang:queue_time_seconds_count", Counter::QueueCount),
    series(
        "sglang:time_to_first_token_seconds_sum",
        Counter::TtftSeconds,
    ),
    series(
        "sglang:time_to_first_token_seconds_count",
        Counter::TtftCount,
    ),
];

const TRTLLM: &[CounterSeries] = &[
    START,
    series("trtllm_prompt_tokens_total", Counter::PromptTokens),
    series("trtllm_generation_tokens_total", Counter::GenerationTokens),
    series("trtllm_prompt_cached_tokens_total", Counter::CacheHits),
    series(
        "trtllm_request_prefill_time_seconds_sum",
        Counter::PrefillSeconds,
    ),
    series(
        "trtllm_request_prefill_time_seconds_count",
        Counter::PrefillCount,
    ),
    series(
        "trtllm_request_decode_time_seconds_sum",
        Counter::DecodeSeconds,
    ),
    series(
        "trtllm_request_decode_time_seconds_count",
        Counter::DecodeCount,
    ),
    series(
        "trtllm_request_queue_time_seconds_sum",
        Counter::QueueSeconds,
    ),
    series(
        "trtllm_request_queue_time_seconds_count",
        Counter::QueueCount,
    ),
    series(
        "trtllm_time_to_first_token_seconds_sum",
        Counter::TtftSeconds,
    ),
    series(
        "trtllm_time_to_first_token_seconds_count",
        Counter::TtftCount,
    ),
];

const TRITON: &[CounterSeries] = &[
    series("nv_llm_input_token_len_sum", Counter::PromptTokens),
    series("nv_llm_output_token_len_sum", Counter::GenerationTokens),
];

const LLAMACPP: &[CounterSeries] = &[
    series("llamacpp:prompt_tokens_total", Counter::ComputedTokens),
    series("llamacpp:prompt_tokens_cached_total", Counter::CacheHits),
    series("llamacpp:prompt_seconds_total", Counter::PrefillSeconds),
    series("llamacpp:tokens_predicted_total", Counter::GenerationTokens),
    series(
        "llamacpp:tokens_predicted_seconds_total",
        Counter::DecodeSeconds,
    ),
];

/// The label of a batch of TGI that computes prompts.
const PREFILL_BATCH: (&str, &str) = ("method", "prefill");

const TGI: &[CounterSeries] = &[
    series("tgi_request_input_length_sum", Counter::PromptTokens),
    series(
        "tgi_request_generated_tokens_sum",
        Counter::GenerationTokens,
    ),
    of(
        PREFILL_BATCH,
        series("tgi_batch_forward_duration_sum", Counter::PrefillSeconds),
    ),
    // Several prompts may share a batch, so the count is of prompts.
    series("tgi_request_input_length_count", Counter::PrefillCount),
    series("tgi_request_queue_duration_sum", Counter::QueueSeconds),
    series("tgi_request_queue_duration_count", Counter::QueueCount),
];

/// Returns the series of an engine's counters.
pub(super) const fn counter_series(engine: Engine) -> &'static [CounterSeries] {
    match engine {
        Engine::Vllm => VLLM,
        Engine::Sglang => SGLANG,
        Engine::Trtllm => TRTLLM,
        Engine::Triton => TRITON,
        Engine::Llamacpp => LLAMACPP,
        Engine::Tgi => TGI,
    }
}
