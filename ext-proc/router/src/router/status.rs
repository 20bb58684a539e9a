//! Reports of a router. A report changes nothing.

use std::collections::BTreeMap;

use super::Router;
use super::hold::{batch_credit, batch_rules, offered_batch_credit};
use super::queued::replica_of_response;
use crate::policy::Policy;
use crate::pool_state::PoolState;
use crate::queue::Band;
use crate::{
    BatchStatus, PeerReport, PeerStatus, PoolEstimates, PromptCost, ReplicaId, ReplicaStatus,
    ResponseKey, Stats, TenantId, TenantStatus, Tier, TierStatus, Time,
};

/// Nodes of the prefix index that one survey of its warmth examines: about a millisecond.
const WARMTH_NODES_MAX: u32 = 50_000;

impl Router {
    /// Statistics as of `now`.
    pub fn stats(&self, now: Time) -> Stats {
        let oldest = self.pool.queue.oldest();
        Stats {
            queue_length: self.pool.queue.len(),
            oldest_wait: oldest
                .map(|queued| now.since(queued.arrived))
                .unwrap_or_default(),
            in_flight: self.pool.in_flight.len(),
            available_replicas: self.pool.replicas.available().len(),
            available_prefillers: self.pool.replicas.prefillers().len(),
            forwarded_in_flight: self.pool.peers.forwarded.len(),
            peer_index: self.pool.peers.index.stats(),
            index: self.pool.caches.index.stats(),
            counters: self.outbox.counters.clone(),
        }
    }

    /// Figures of the tenants, in no order: those with an entry of their own, then all others together.
    pub fn tenants(&self) -> impl Iterator<Item = &TenantStatus> {
        self.pool.tenants.all()
    }

    /// Every replica, in order of identity.
    pub fn replicas(&self, now: Time) -> impl Iterator<Item = ReplicaStatus> + '_ {
        self.pool.replicas.all().filter_map(move |index| {
            let status = self.pool.replicas.status(index, now)?;
            Some(ReplicaStatus {
                prefix_bytes: self.pool.caches.index.held_bytes(index),
                adapters: self.pool.adapters.status(index),
                ..status
            })
        })
    }

    /// Whether a replica has no request, as far as this router and its siblings know.
    #[must_use]
    pub fn is_idle(&self, replica: ReplicaId) -> bool {
        let slot = self.pool.replicas.slot_of(replica);
        let replica = slot.and_then(|slot| self.pool.replicas.get(slot));
        replica.is_some_and(|replica| replica.requests() == 0)
    }

    /// Status of every peer, in order of id.
    pub fn peers(&self, now: Time) -> impl Iterator<Item = PeerStatus> + '_ {
        self.pool.peers.statuses(now)
    }

    /// Figures of every workload tier, the fast one first.
    #[must_use]
    pub fn tiers(&self, now: Time) -> [TierStatus; 3] {
        let (queue, config) = (&self.pool.queue, &self.pool.config);
        let tiers = [
            Tier::InteractiveFast,
            Tier::InteractiveNormal,
            Tier::NonInteractive,
        ];
        let mut counts = self.outbox.tiers;
        tiers.map(|tier| {
            let (waiting, oldest) = queue.count(|q| config.tier_of(q.request.tier) == tier);
            TierStatus {
                tier,
                waiting,
                oldest_wait: oldest.map_or_else(Default::default, |q| now.since(q.entered)),
                ..*counts.of(tier)
            }
        })
    }

    /// Figures of the batch gate; all zero in a pool without tiers.
    #[must_use]
    pub fn batch_status(&self, now: Time) -> BatchStatus {
        if batch_rules(&self.pool).is_none() {
            return BatchStatus::default();
        }
        let (held, oldest) = self.pool.queue.count(|queued| queued.band == Band::Held);
        let of_pool = self.pool.replicas.memory_use_of_pool();
        BatchStatus {
            utilisation: of_pool.map(|of_pool| of_pool.share),
            credit: batch_credit(&self.pool).0,
            held,
            oldest_wait: oldest.map_or_else(Default::default, |oldest| now.since(oldest.entered)),
            released: self.pool.gate.released().clone(),
        }
    }

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
            bytes_per_token: self.pool.caches.token_length.bytes(),
            output_tokens: replicas.output_tokens(),
        }
    }

    /// Position of the prefix index in its own time, which grows with each placement.
    #[must_use]
    pub const fn index_tick(&self) -> u64 {
        self.pool.caches.index.last_tick()
    }

    /// Work to compute anew what one replica alone holds, of the prefixes that were used after a tick of [`Self::index_tick`]: the
    /// loss if the replica is removed, in seconds. A replica without such prefixes is absent.
    #[must_use]
    pub fn warmth(&self, since: u64) -> BTreeMap<ReplicaId, f64> {
        let bytes = self
            .pool
            .caches
            .index
            .unshared_bytes(since, WARMTH_NODES_MAX);
        let replicas = &self.pool.replicas;
        let second_bytes =
            self.pool.caches.token_length.bytes() / replicas.latency().prefill.each_s;
        let warm = bytes.into_iter().filter_map(|(slot, bytes)| {
            let seconds = bytes as f64 / second_bytes;
            let seconds = if seconds.is_finite() { seconds } else { 0.0 };
            Some((replicas.id_of(slot)?, seconds))
        });
        warm.collect()
    }

    /// Whether the counters at a replica's address are those of several processes in turn, which tell nothing.
    #[must_use]
    pub fn has_several_processes(&self, replica: ReplicaId, now: Time) -> bool {
        let replicas = &self.pool.replicas;
        let slot = replicas.slot_of(replica);
        slot.is_some_and(|slot| replicas.has_several_processes(slot, now))
    }

    /// The replica that may have a stored response of a tenant, if it is still in the pool.
    pub fn replica_of_response(
        &self,
        tenant: TenantId,
        response: ResponseKey,
    ) -> Option<ReplicaId> {
        replica_of_response(&self.pool, tenant, response)
    }

    /// Report of this pool for its peers, as of the last event.
    ///
    /// `drain_per_s` follows from Little's law: the requests that the replicas hold when their free capacity is used, divided
    /// by the learned service time; zero while no request has ended.
    #[expect(clippy::cast_possible_truncation, reason = "a share for a message")]
    pub fn report(&self) -> PeerReport {
        let free_capacity = self.pool.replicas.free_capacity();
        let held = self.pool.in_flight.len() as u64 + free_capacity.unwrap_or_default();
        let of_pool = self.pool.replicas.memory_use_of_pool();
        PeerReport {
            available: saturate(self.pool.replicas.available().len() as u64),
            replicas: saturate(self.pool.replicas.staying().len() as u64),
            free_capacity: free_capacity.map_or(u32::MAX, saturate),
            queue: saturate(self.pool.queue.len() as u64),
            drain_per_s: per_second(held, self.pool.service_s),
            prompt_cost: prompt_cost(&self.pool, &*self.policy),
            utilisation: of_pool.map(|of_pool| of_pool.share as f32),
            kv_capacity_tokens: of_pool.and_then(|p| p.capacity_tokens).unwrap_or_default(),
            batch_credit: offered_batch_credit(&self.pool),
            batch_queue: saturate(self.pool.queue.held_len() as u64),
        }
    }
}

/// Cost of a prompt that no replica holds, for peers.
fn prompt_cost(pool: &PoolState, policy: &dyn Policy) -> Option<PromptCost> {
    let available = pool.replicas.available();
    let prices = !pool.peers.is_empty() && !available.is_empty();
    let costs = policy.region_costs().filter(|_| prices)?;
    let cost = costs.prompt_cost(&pool.view(available))?;
    // A peer refuses a report with another number.
    cost.parts()
        .iter()
        .all(|part| part.is_finite())
        .then_some(cost)
}

fn saturate(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "an estimate"
)]
fn per_second(held: u64, service_s: Option<f64>) -> f32 {
    match service_s {
        Some(service_s) if service_s > 0.0 => (held as f64 / service_s) as f32,
        Some(_) | None => 0.0,
    }
}
