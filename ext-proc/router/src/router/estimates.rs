//! Learned quantities of a pool, with their sources.

use super::Router;
use crate::PoolEstimates;

impl Router {
    /// Estimates of the pool.
    #[must_use]
    pub fn estimates(&self) -> PoolEstimates {
        let replicas = &self.pool.replicas;
        let latency = replicas.latency();
        PoolEstimates {
            signals: replicas.signals(),
            first_token_s: latency.prefill.fixed_s,
            prompt_token_s: latency.prefill.each_s,
            output_token_s: latency.decode.at(1.0),
            bytes_per_token: self.token_length.bytes(),
            output_tokens: replicas.output_tokens(),
        }
    }
}
