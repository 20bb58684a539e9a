//! The metrics by which each engine reports its load.
//!
//! One table per engine, with exact names. The tables do not show how series add up:
//! - vLLM with data parallelism has one series for each `engine`; the service sums them.
//! - SGLang has one for each `dp_rank`. With metrics of all schedulers it has one more for each tensor and pipeline rank,
//!   which repeat the same load; so the largest of a `dp_rank` counts, and the service sums the ranks. With priorities
//!   SGLang adds series with a `priority` label that is not empty; the empty one is their total.
//! - Usage is a share, so the service averages it over ranks.

use crate::config::Engine;

/// The quantity that a series reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Quantity {
    /// Requests accepted but not yet in the batch.
    Waiting,
    /// Requests in the batch.
    Running,
    /// Share of the KV cache in use.
    Usage,
    /// Capacity of the KV cache in tokens.
    CapacityTokens,
    /// Capacity of the KV cache in blocks.
    CapacityBlocks,
    /// Tokens in a block of the KV cache.
    BlockTokens,
    /// Whether the engine is awake: 0 while it sleeps.
    Awake,
    /// Whether the engine sleeps.
    Asleep,
    /// A series whose labels `block_size` and `num_gpu_blocks` give the capacity.
    CacheInfo,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Series {
    pub(super) name: &'static str,
    /// The label and value that distinguish it from other series of the name.
    pub(super) only: Option<(&'static str, &'static str)>,
    pub(super) quantity: Quantity,
}

/// How series of the same rank and quantity become one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merge {
    /// The series are parts: their sum.
    Sum,
    /// The series repeat each other: the largest.
    Max,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MetricTable {
    pub(super) path: &'static str,
    pub(super) series: &'static [Series],
    /// The label that distinguishes data-parallel ranks (or models, or versions).
    pub(super) rank: &'static str,
    pub(super) merge: Merge,
    /// A label that must be absent or empty, because series that have it are parts of the one that has not.
    pub(super) total_only: Option<&'static str>,
    /// The series whose labels name the adapters of requests.
    pub(super) adapters: Option<&'static str>,
    /// The path of the list of models, if it names the adapters that the replica can serve.
    pub(super) models_path: Option<&'static str>,
}

const fn series(name: &'static str, quantity: Quantity) -> Series {
    Series {
        name,
        only: None,
        quantity,
    }
}

const DEFAULT: MetricTable = MetricTable {
    path: "/metrics",
    series: &[],
    rank: "",
    merge: Merge::Sum,
    total_only: None,
    adapters: None,
    models_path: None,
};

const VLLM: MetricTable = MetricTable {
    series: &[
        series("vllm:num_requests_waiting", Quantity::Waiting),
        series("vllm:num_requests_running", Quantity::Running),
        series("vllm:kv_cache_usage_perc", Quantity::Usage),
        // The name until version 0.10.
        series("vllm:gpu_cache_usage_perc", Quantity::Usage),
        series("vllm:cache_config_info", Quantity::CacheInfo),
        Series {
            only: Some(("sleep_state", "awake")),
            ..series("vllm:engine_sleep_state", Quantity::Awake)
        },
    ],
    rank: "engine",
    adapters: Some("vllm:lora_requests_info"),
    models_path: Some("/v1/models"),
    ..DEFAULT
};

const SGLANG: MetricTable = MetricTable {
    series: &[
        series("sglang:num_queue_reqs", Quantity::Waiting),
        series("sglang:num_running_reqs", Quantity::Running),
        series("sglang:token_usage", Quantity::Usage),
        series("sglang:max_total_num_tokens", Quantity::CapacityTokens),
        // Some builds write an underscore for the colon.
        series("sglang_num_queue_reqs", Quantity::Waiting),
        series("sglang_num_running_reqs", Quantity::Running),
        series("sglang_token_usage", Quantity::Usage),
        series("sglang_max_total_num_tokens", Quantity::CapacityTokens),
    ],
    rank: "dp_rank",
    merge: Merge::Max,
    total_only: Some("priority"),
    models_path: Some("/v1/models"),
    ..DEFAULT
};

const TRTLLM: MetricTable = MetricTable {
    // `/metrics` is JSON, and reading it empties it.
    path: "/prometheus/metrics",
    series: &[
        series("trtllm_num_requests_waiting", Quantity::Waiting),
        series("trtllm_num_requests_running", Quantity::Running),
        series("trtllm_kv_cache_utilization", Quantity::Usage),
        series("trtllm_kv_cache_max_blocks", Quantity::CapacityBlocks),
        series("trtllm_kv_cache_tokens_per_block", Quantity::BlockTokens),
    ],
    ..DEFAULT
};

const fn triton_requests(kind: &'static str, quantity: Quantity) -> Series {
    Series {
        only: Some(("request_type", kind)),
        ..series("nv_trt_llm_request_metrics", quantity)
    }
}

const fn triton_blocks(kind: &'static str, quantity: Quantity) -> Series {
    Series {
        only: Some(("kv_cache_block_type", kind)),
        ..series("nv_trt_llm_kv_cache_block_metrics", quantity)
    }
}

const TRITON: MetricTable = MetricTable {
    series: &[
        triton_requests("waiting", Quantity::Waiting),
        triton_requests("active", Quantity::Running),
        triton_blocks("fraction", Quantity::Usage),
        triton_blocks("max", Quantity::CapacityBlocks),
        triton_blocks("tokens_per", Quantity::BlockTokens),
    ],
    rank: "model",
    ..DEFAULT
};

const LLAMACPP: MetricTable = MetricTable {
    series: &[
        series("llamacpp:requests_deferred", Quantity::Waiting),
        series("llamacpp:requests_processing", Quantity::Running),
    ],
    ..DEFAULT
};

const TGI: MetricTable = MetricTable {
    series: &[
        series("tgi_queue_size", Quantity::Waiting),
        series("tgi_batch_current_size", Quantity::Running),
    ],
    ..DEFAULT
};

impl Engine {
    pub(super) const fn table(self) -> &'static MetricTable {
        match self {
            Self::Vllm => &VLLM,
            Self::Sglang => &SGLANG,
            Self::Trtllm => &TRTLLM,
            Self::Triton => &TRITON,
            Self::Llamacpp => &LLAMACPP,
            Self::Tgi => &TGI,
        }
    }

    /// Returns the names of the metrics that report how many requests wait.
    pub(super) fn waiting_names(self) -> impl Iterator<Item = &'static str> {
        let series = self.table().series.iter();
        let waiting = series.filter(|series| series.quantity == Quantity::Waiting);
        waiting.map(|series| series.name)
    }

    /// Returns the engine that reports its waiting requests as the metric `name`.
    pub(super) fn of_metric(name: &[u8]) -> Option<Self> {
        let mut engines = Self::ALL.iter().copied();
        engines.find(|engine| engine.waiting_names().any(|known| known.as_bytes() == name))
    }
}
