//! Inputs of the cost model of each replica, side by side.
//!
//! A decision prices about ten of a thousand replicas, and a [`Replica`] spans a dozen cache lines. The copy is updated
//! whenever the replica changes.

use super::{ArrivalRate, LatencyModel};
use crate::Time;
use crate::replica::Replica;

/// Inputs of the cost model. The default is an idle replica.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CostInputs {
    /// When all dispatched prompts will be computed.
    pub(super) ready: Time,
    /// Arrival rates.
    pub(super) arrivals: ArrivalRate,
    /// The replica's own latency model, once it has measured enough.
    pub(super) latency: Option<LatencyModel>,
    /// KV cache of the engine, if it reports it.
    pub(super) memory: Option<Memory>,
}

/// KV cache of an engine, in tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub(super) capacity: f64,
    pub(super) free: f64,
}

impl CostInputs {
    pub(super) fn of(replica: &Replica) -> Self {
        let reported = replica
            .load()
            .and_then(|load| Some((load.kv_usage?, load.kv_capacity_tokens?)));
        Self {
            ready: replica.backlog.ready(),
            arrivals: replica.arrivals,
            latency: replica.backlog.latency().copied(),
            memory: reported.map(|(usage, capacity)| Memory::new(usage, capacity)),
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
