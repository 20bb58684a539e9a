//! What a pool has learned, and where it comes from.

use super::Router;
use crate::{Learned, Signals, Source};

impl Router {
    /// Learned quantities of the pool.
    #[must_use]
    pub fn learned(&self) -> Learned {
        let replicas = &self.pool.replicas;
        let latency = replicas.latency();
        Learned {
            signals: self.signals(),
            first_token_s: latency.prefill.fixed_s,
            prompt_token_s: latency.prefill.each_s,
            output_token_s: latency.decode.fixed_s + latency.decode.each_s,
            bytes_per_token: self.bytes_per_token,
            output_tokens: replicas.output_tokens(),
        }
    }

    fn signals(&self) -> Signals {
        let of = |is_learned| {
            if is_learned {
                Source::Usage
            } else {
                Source::Presumed
            }
        };
        let replicas = &self.pool.replicas;
        let has_usage = self.counters.measured_prompt_tokens > 0;
        Signals {
            prompt_speed: of(replicas.is_measured()),
            decode_speed: of(replicas.is_measured()),
            token_length: of(has_usage),
            cache_hits: of(has_usage),
            answer_length: of(replicas.is_measured()),
        }
    }
}
