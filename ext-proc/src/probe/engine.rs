//! The metrics of each engine, by their exact names.
//!
//! One table an engine, exact names. What the tables cannot say is how series add up:
//! - vLLM with data parallelism has one series for each `engine`; they are summed.
//! - SGLang has one for each `dp_rank`, and with metrics of all schedulers one more for each tensor and pipeline
//!   rank, which repeat the same load; so the largest of a `dp_rank` counts, and ranks are summed. With priorities
//!   it adds series whose `priority` label is not empty; the empty one is their total.
//! - Usage is a share, so it is averaged over ranks.

use crate::config::Engine;

/// The meaning of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
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
    /// A series whose labels `block_size` and `num_gpu_blocks` give the capacity.
    CacheInfo,
}

/// One series of interest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series {
    pub(super) name: &'static str,
    /// The label and value that tell it from others of its name.
    pub(super) only: Option<(&'static str, &'static str)>,
    pub(super) role: Role,
}

/// How series of the same rank and role become one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merge {
    /// The series are parts of a total.
    Sum,
    /// The series repeat one value.
    Max,
}

/// The metrics page of an engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    /// Path of the page.
    pub(super) path: &'static str,
    pub(super) series: &'static [Series],
    /// The label that tells data-parallel ranks (or models, or versions) apart.
    pub(super) rank: &'static str,
    pub(super) merge: Merge,
    /// A label that must be absent or empty, because series that have it are parts of the one that has not.
    pub(super) total_only: Option<&'static str>,
}

const fn series(name: &'static str, role: Role) -> Series {
    Series {
        name,
        only: None,
        role,
    }
}

const fn labelled(
    name: &'static str,
    label: &'static str,
    value: &'static str,
    role: Role,
) -> Series {
    Series {
        name,
        only: Some((label, value)),
        role,
    }
}

const METRICS: &str = "/metrics";

const VLLM: Table = Table {
    path: METRICS,
    series: &[
        series("vllm:num_requests_waiting", Role::Waiting),
        series("vllm:num_requests_running", Role::Running),
        series("vllm:kv_cache_usage_perc", Role::Usage),
        // Its name until version 0.10.
        series("vllm:gpu_cache_usage_perc", Role::Usage),
        series("vllm:cache_config_info", Role::CacheInfo),
    ],
    rank: "engine",
    merge: Merge::Sum,
    total_only: None,
};

const SGLANG: Table = Table {
    path: METRICS,
    series: &[
        series("sglang:num_queue_reqs", Role::Waiting),
        series("sglang:num_running_reqs", Role::Running),
        series("sglang:token_usage", Role::Usage),
        series("sglang:max_total_num_tokens", Role::CapacityTokens),
        // Some builds write an underscore for the colon.
        series("sglang_num_queue_reqs", Role::Waiting),
        series("sglang_num_running_reqs", Role::Running),
        series("sglang_token_usage", Role::Usage),
        series("sglang_max_total_num_tokens", Role::CapacityTokens),
    ],
    rank: "dp_rank",
    merge: Merge::Max,
    total_only: Some("priority"),
};

const TRTLLM: Table = Table {
    // Its `/metrics` is another page: JSON, and reading it empties it.
    path: "/prometheus/metrics",
    series: &[
        series("trtllm_num_requests_waiting", Role::Waiting),
        series("trtllm_num_requests_running", Role::Running),
        series("trtllm_kv_cache_utilization", Role::Usage),
        series("trtllm_kv_cache_max_blocks", Role::CapacityBlocks),
        series("trtllm_kv_cache_tokens_per_block", Role::BlockTokens),
    ],
    rank: "",
    merge: Merge::Sum,
    total_only: None,
};

const TRITON_REQUESTS: &str = "nv_trt_llm_request_metrics";
const TRITON_BLOCKS: &str = "nv_trt_llm_kv_cache_block_metrics";
const TRITON_BLOCK_LABEL: &str = "kv_cache_block_type";

const TRITON: Table = Table {
    path: METRICS,
    series: &[
        labelled(TRITON_REQUESTS, "request_type", "waiting", Role::Waiting),
        labelled(TRITON_REQUESTS, "request_type", "active", Role::Running),
        labelled(TRITON_BLOCKS, TRITON_BLOCK_LABEL, "fraction", Role::Usage),
        labelled(
            TRITON_BLOCKS,
            TRITON_BLOCK_LABEL,
            "max",
            Role::CapacityBlocks,
        ),
        labelled(
            TRITON_BLOCKS,
            TRITON_BLOCK_LABEL,
            "tokens_per",
            Role::BlockTokens,
        ),
    ],
    rank: "model",
    merge: Merge::Sum,
    total_only: None,
};

const LLAMACPP: Table = Table {
    path: METRICS,
    series: &[
        series("llamacpp:requests_deferred", Role::Waiting),
        series("llamacpp:requests_processing", Role::Running),
    ],
    rank: "",
    merge: Merge::Sum,
    total_only: None,
};

const TGI: Table = Table {
    path: METRICS,
    series: &[
        series("tgi_queue_size", Role::Waiting),
        series("tgi_batch_current_size", Role::Running),
    ],
    rank: "",
    merge: Merge::Sum,
    total_only: None,
};

impl Engine {
    pub(super) const fn table(self) -> &'static Table {
        match self {
            Self::Vllm => &VLLM,
            Self::Sglang => &SGLANG,
            Self::Trtllm => &TRTLLM,
            Self::Triton => &TRITON,
            Self::Llamacpp => &LLAMACPP,
            Self::Tgi => &TGI,
        }
    }

    /// Name of the metric that each page must have, for messages.
    pub(super) fn waiting_name(self) -> &'static str {
        let waiting = self
            .table()
            .series
            .iter()
            .find(|series| series.role == Role::Waiting);
        waiting.map_or("", |series| series.name)
    }

    /// The engine whose number of waiting requests has this name.
    pub(super) fn of_metric(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|engine| {
            engine
                .table()
                .series
                .iter()
                .any(|series| series.role == Role::Waiting && series.name.as_bytes() == name)
        })
    }
}
