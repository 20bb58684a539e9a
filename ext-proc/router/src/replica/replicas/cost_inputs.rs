//! What a replica's offer is made of, side by side: a decision prices some ten of a thousand replicas, and each of those is
//! a dozen cache lines that lie anywhere. Kept as the replica is, whenever it changes.

use super::{ArrivalRate, LatencyModel};
use crate::Time;
use crate::replica::Replica;

/// What a replica's offer is made of. One that is not there has nothing to do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CostInputs {
    /// When what was sent to it is computed.
    pub(super) ready: Time,
    /// What it was sent over the last while.
    pub(super) arrivals: ArrivalRate,
    /// How fast it is, as far as it has measured that itself.
    pub(super) latency: Option<LatencyModel>,
    /// Its engine's memory, where that is told.
    pub(super) memory: Option<Memory>,
}

/// An engine's memory, in tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub(super) capacity: f64,
    pub(super) free: f64,
}

impl CostInputs {
    pub(super) fn of(replica: &Replica) -> Self {
        let told = replica
            .load()
            .and_then(|load| Some((load.kv_usage?, load.kv_capacity_tokens?)));
        Self {
            ready: replica.backlog.ready(),
            arrivals: replica.arrivals,
            latency: replica.backlog.latency().copied(),
            memory: told.map(|(usage, capacity)| Memory::new(usage, capacity)),
        }
    }
}

impl Memory {
    #[expect(clippy::cast_precision_loss, reason = "a size in tokens")]
    fn new(usage: f32, capacity: u64) -> Self {
        let capacity = capacity as f64;
        Self {
            capacity,
            free: capacity * (1.0 - f64::from(usage)),
        }
    }
}
