//! Demand in the work that it takes, not in tokens: cached prompt tokens cost a replica nothing.
//!
//! A request occupies a replica for `fixed + token · uncached` seconds of prefill. Each of its `e` output tokens takes the
//! replica's share of a decode step, `(d0 + d1 · o) / o = d0 / o + d1` with `o` requests in the batch. `o` is the number at which
//! the replica meets its objective. The sum over a minute, divided by 60 s, is the number of busy replicas.
//!
//! Memory is a second demand: a request holds its prompt and, on average, half of its answer for its duration `T`. The sum of
//! `(prompt + e/2) · T` over a minute, divided by 60 s and by the capacity of a KV cache, is the number of full replicas.

use serde::{Deserialize, Serialize};

/// Latency model of a replica of the pool, as the router learns it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkModel {
    /// Time of a prefill without uncached tokens, in seconds.
    pub prefill_s: f64,
    /// Time to compute a prompt token, in seconds.
    pub prompt_token_s: f64,
    /// Time of a decode step, without the part that grows with the batch, in seconds (d0).
    pub decode_step_s: f64,
    /// Further time of a decode step for each request in the batch, in seconds (d1).
    pub decode_request_s: f64,
    /// Requests in the batch at which the replica meets its objective, at least 1 (o).
    pub batch: f64,
}

/// A finished request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FinishedRequest {
    /// Prompt length, in tokens.
    pub prompt_tokens: f64,
    /// Prompt tokens that the replica computed.
    pub uncached_tokens: f64,
    /// Answer length, in tokens.
    pub output_tokens: f64,
    /// Time at the replica, in seconds.
    pub duration_s: f64,
    /// Whether its first token came within the objective.
    pub is_in_slo: bool,
}

impl WorkModel {
    /// Work of a request, in seconds of one replica; finite and at least zero.
    #[must_use]
    pub fn work_s(&self, request: &FinishedRequest) -> f64 {
        let batch = finite(self.batch).max(1.0);
        let prefill =
            finite(self.prefill_s) + finite(self.prompt_token_s) * finite(request.uncached_tokens);
        let decode_share = finite(self.decode_step_s) / batch + finite(self.decode_request_s);
        finite(prefill + decode_share * finite(request.output_tokens))
    }
}

/// Sums over the requests of a minute. Sums of several services add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DemandSums {
    /// Requests.
    pub requests: f64,
    /// Requests with their first token within the objective.
    pub requests_in_slo: f64,
    /// Work, in seconds of one replica.
    pub work_s: f64,
    /// Prompt tokens.
    pub input_tokens: f64,
    /// Tokens in the KV cache, times the seconds for which they were there.
    pub kv_token_s: f64,
}

impl DemandSums {
    /// Counts a finished request.
    pub fn add_finished(&mut self, model: &WorkModel, request: &FinishedRequest) {
        let prompt = finite(request.prompt_tokens);
        self.requests += 1.0;
        self.requests_in_slo += f64::from(u8::from(request.is_in_slo));
        self.work_s += model.work_s(request);
        self.input_tokens += prompt;
        self.kv_token_s +=
            finite((prompt + finite(request.output_tokens) / 2.0) * finite(request.duration_s));
    }

    /// Counts a request that the service rejected for lack of capacity, by the work and the tokens that it was estimated to
    /// take. It is demand as well.
    pub fn add_rejected(&mut self, model: &WorkModel, estimate: &FinishedRequest) {
        self.add_finished(
            model,
            &FinishedRequest {
                is_in_slo: false,
                ..*estimate
            },
        );
    }

    /// Adds the sums of another service.
    pub fn merge(&mut self, other: &Self) {
        self.requests += finite(other.requests);
        self.requests_in_slo += finite(other.requests_in_slo);
        self.work_s += finite(other.work_s);
        self.input_tokens += finite(other.input_tokens);
        self.kv_token_s += finite(other.kv_token_s);
    }
}

/// The value, or zero if it is negative or no finite number.
pub(crate) fn finite(value: f64) -> f64 {
    if value.is_finite() {
        value.max(0.0)
    } else {
        0.0
    }
}
