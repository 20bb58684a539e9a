//! Effective memory utilisation (SageServe 4 and 6.1): the share of the memory for KV caches in use.
//!
//! Gauges lag, so the tokens of the requests that were sent since a probe are added to what it shows. Without a capacity, the
//! gauge counts as it is.

use super::{Replica, Replicas};
use crate::Time;
use crate::replica_index::ReplicaIndex;

/// Share of the memory for KV caches in use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct MemoryUse {
    /// From 0; above 1 where more was sent than fits.
    pub(crate) share: f64,
    /// Capacity in tokens, if it is known.
    pub(crate) capacity_tokens: Option<u64>,
}

impl Replica {
    /// Registers the tokens that a dispatched request needs memory for.
    fn occupy(&mut self, tokens: u32, now: Time) {
        self.sent_tokens.add(now, tokens);
        let probed = self.probe.map_or(Time::ZERO, |(_, sent)| sent);
        self.sent_tokens.forget_before(probed);
    }

    /// Memory in use; `None` where the engine shows nothing of it.
    #[expect(clippy::cast_precision_loss, reason = "numbers of tokens")]
    pub(crate) fn memory_use(&self) -> Option<MemoryUse> {
        let (load, sent) = self.probe.filter(|_| self.has_metrics())?;
        let usage = load.kv_usage.map(f64::from);
        let usage = usage.filter(|usage| usage.is_finite())?;
        let capacity_tokens = load.kv_capacity_tokens.filter(|tokens| *tokens > 0);
        let sent = f64::from(self.sent_tokens.since(sent));
        let added = capacity_tokens.map_or(0.0, |capacity| sent / capacity as f64);
        Some(MemoryUse {
            share: usage.max(0.0) + added,
            capacity_tokens,
        })
    }
}

impl Replicas {
    /// Registers the tokens that a request needs memory for, which is sent to a replica now.
    pub(crate) fn occupy(&mut self, slot: ReplicaIndex, tokens: f64, now: Time) {
        if let Some(replica) = self.get_mut(slot) {
            replica.occupy(whole(tokens), now);
        }
    }

    /// Memory in use of a replica; `None` where its engine shows nothing of it.
    pub(crate) fn memory_use(&self, slot: ReplicaIndex) -> Option<MemoryUse> {
        self.get(slot)?.memory_use()
    }

    /// Memory in use of all replicas that stay: by capacity where each tells it, else the mean. `None` where none shows its use.
    #[expect(clippy::cast_precision_loss, reason = "numbers of tokens")]
    pub(crate) fn memory_use_of_pool(&self) -> Option<MemoryUse> {
        let uses = || {
            let staying = self.staying().iter();
            staying.filter_map(|slot| self.memory_use(slot))
        };
        let capacities = uses().map(|of_one| of_one.capacity_tokens);
        let capacity_tokens = capacities.reduce(|a, b| Some(a?.saturating_add(b?)))?;
        let weight = |of_one: &MemoryUse| match (capacity_tokens, of_one.capacity_tokens) {
            (Some(_), Some(capacity)) => capacity as f64,
            _ => 1.0,
        };
        let (used, all) = uses().fold((0.0, 0.0), |(used, all), of_one| {
            let weight = weight(&of_one);
            (used + weight * of_one.share, all + weight)
        });
        Some(MemoryUse {
            share: used / all,
            capacity_tokens,
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of tokens; saturates"
)]
const fn whole(tokens: f64) -> u32 {
    tokens as u32
}
