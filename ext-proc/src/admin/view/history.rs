//! The JSON of `GET /api/history`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An entry of `GET /api/history`: the last ten minutes of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PoolHistoryView {
    pub pool: String,
    /// Time between two samples.
    pub interval_ms: u64,
    /// Samples, the oldest first.
    pub samples: Vec<SampleView>,
}

/// The traffic of a pool since the sample before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SampleView {
    /// End of the sample's interval, in milliseconds since 1970.
    pub time_unix_ms: u64,
    /// Length of the interval.
    pub seconds: f64,
    /// Dispatched requests by reason; a reason without requests is absent.
    pub decisions: BTreeMap<String, u64>,
    pub rejected: u64,
    pub failed: u64,
    /// Prompt tokens whose cache hits are known.
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    /// Time to the first byte; absent without responses.
    pub ttft_p50_ms: Option<f64>,
    pub ttft_p95_ms: Option<f64>,
    /// Requests in flight at the end of the interval.
    pub in_flight: usize,
    /// Requests in the queue at the end of the interval.
    pub waiting: usize,
}
