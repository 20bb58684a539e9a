//! Effective memory utilisation (SageServe 4 and 6.1): the share of the memory for KV caches in use.
//!
//! Gauges lag, so the tokens of the requests that were sent since a probe are added to what it shows. Without a capacity, the
//! gauge counts as it is.

use super::{Replica, Replicas};
use crate::ReplicaId;
use crate::constant::constants;
use crate::replica_index::ReplicaIndex;

constants! {
    /// The largest capacity with which a replica counts in its pool, in multiples of the harmonic mean of all capacities.
    /// Guards: no replica makes the pool look full or empty by a wild claim.
    CAPACITY_MAX: f64 = 1.5;
}

/// Share of the memory for KV caches in use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct MemoryUse {
    /// From 0; above 1 where more was sent than fits.
    pub(crate) share: f64,
    /// Capacity in tokens, if it is known.
    pub(crate) capacity_tokens: Option<u64>,
}

impl Replica {
    /// Memory in use; `None` where the engine shows nothing of it.
    #[expect(clippy::cast_precision_loss, reason = "numbers of tokens")]
    pub(crate) fn memory_use(&self) -> Option<MemoryUse> {
        let load = self.load()?;
        let usage = load.kv_usage.map(f64::from);
        let usage = usage.filter(|usage| usage.is_finite())?;
        let capacity_tokens = load.kv_capacity_tokens.filter(|tokens| *tokens > 0);
        let sent = self.ledger.unprobed_tokens();
        let added = capacity_tokens.map_or(0.0, |capacity| sent / capacity as f64);
        Some(MemoryUse {
            share: usage.max(0.0) + added,
            capacity_tokens,
        })
    }
}

impl Replicas {
    /// Capacity of a replica's KV cache in tokens, if the engine tells it.
    pub(crate) fn kv_capacity_tokens(&self, id: ReplicaId) -> Option<u64> {
        let replica = self.slot_of(id).and_then(|slot| self.get(slot))?;
        replica.load()?.kv_capacity_tokens
    }

    /// Memory in use of a replica; `None` where its engine shows nothing of it.
    pub(crate) fn memory_use(&self, slot: ReplicaIndex) -> Option<MemoryUse> {
        self.get(slot)?.memory_use()
    }

    /// Memory in use of all replicas that stay: by capacity where each tells it, else the mean. `None` where none shows its use.
    ///
    /// A replica may claim any capacity, so one counts with at most half more than the harmonic mean, which no claim raises.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "numbers of tokens"
    )]
    pub(crate) fn memory_use_of_pool(&self) -> Option<MemoryUse> {
        let uses = || {
            let staying = self.staying().iter();
            staying.filter_map(|slot| self.memory_use(slot))
        };
        let (mut count, mut inverses, mut are_told) = (0.0, 0.0, true);
        for of_one in uses() {
            count += 1.0;
            match of_one.capacity_tokens {
                Some(capacity) => inverses += 1.0 / capacity as f64,
                None => are_told = false,
            }
        }
        if count == 0.0 {
            return None;
        }
        let capacity_max = CAPACITY_MAX.get() * count / inverses;
        let capacity = |of_one: &MemoryUse| match of_one.capacity_tokens {
            Some(capacity) if are_told => capacity_max.min(capacity as f64),
            _ => 1.0,
        };
        let (used, all) = uses().fold((0.0, 0.0), |(used, all), of_one| {
            let capacity = capacity(&of_one);
            (used + capacity * of_one.share, all + capacity)
        });
        Some(MemoryUse {
            share: used / all,
            capacity_tokens: are_told.then_some(all as u64),
        })
    }
}
