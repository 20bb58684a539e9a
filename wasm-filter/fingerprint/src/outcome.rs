//! How a request ended, as the response filter tells the service in one trailer.

/// What an engine said of its own load in a response (ORCA's `endpoint-load-metrics`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Requests accepted but not yet in the continuous batch.
    pub waiting: u32,
    /// Requests in the continuous batch, where the engine tells.
    pub running: Option<u32>,
    /// Share of the KV cache in use, from 0 to 1, where the engine tells.
    pub kv_usage: Option<f32>,
}

/// How a request ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// HTTP status of the response.
    pub status: u16,
    /// From the end of the request's headers to the first body byte of the response, in microseconds.
    pub ttft_us: Option<u64>,
    /// `usage`: prompt tokens, as the engine counted them.
    pub prompt_tokens: Option<u32>,
    /// `usage`: prompt tokens that the engine found in its cache.
    pub cached_tokens: Option<u32>,
    /// `usage`: output tokens.
    pub completion_tokens: Option<u32>,
    /// The engine's load report.
    pub load: Option<LoadReport>,
    /// The endpoint that really served, `ip:port`, after any retry.
    pub served: Option<alloc::string::String>,
}
