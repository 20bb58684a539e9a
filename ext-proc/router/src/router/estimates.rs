//! Learned quantities of a pool, with their sources.

use std::collections::BTreeMap;

use super::Router;
use crate::{PoolEstimates, ReplicaId};

/// Nodes of the prefix index that one survey of its warmth examines: about a millisecond.
const WARMTH_NODES_MAX: u32 = 50_000;

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
            decode_step_s: latency.decode.fixed_s,
            decode_request_s: latency.decode.each_s,
            bytes_per_token: self.token_length.bytes(),
            output_tokens: replicas.output_tokens(),
        }
    }

    /// Position of the prefix index in its own time, which grows with each placement.
    #[must_use]
    pub const fn index_tick(&self) -> u64 {
        self.pool.index.last_tick()
    }

    /// Work to compute anew what one replica alone holds, of the prefixes that were used after a tick of [`Self::index_tick`]: the
    /// loss if the replica is removed, in seconds. A replica without such prefixes is absent.
    #[must_use]
    pub fn warmth(&self, since: u64) -> BTreeMap<ReplicaId, f64> {
        let bytes = self.pool.index.unshared_bytes(since, WARMTH_NODES_MAX);
        let replicas = &self.pool.replicas;
        let second_bytes = self.token_length.bytes() / replicas.latency().prefill.each_s;
        let warm = bytes.into_iter().filter_map(|(slot, bytes)| {
            let seconds = bytes as f64 / second_bytes;
            let seconds = if seconds.is_finite() { seconds } else { 0.0 };
            Some((replicas.id_of(slot)?, seconds))
        });
        warm.collect()
    }
}
