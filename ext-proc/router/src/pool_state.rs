//! The state of a pool that decisions read. Decisions borrow it; only the handling of events changes it.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::adapters::{AdapterCost, Adapters};
use crate::config::PoolConfig;
use crate::constant::constants;
use crate::forwarding::PeerTable;
use crate::gate::BatchGate;
use crate::in_flight::InFlightRequest;
use crate::index::{Caches, index_limits};
use crate::quarantine::Quarantine;
use crate::queue::{LineRules, Queue, QueueSeq};
use crate::replica::Replicas;
use crate::replica_index::ReplicaIndex;
use crate::tenants::TenantTable;
use crate::{
    AdapterKey, AdapterReport, Load, PeerId, ReplicaId, Request, RequestId, ResponseKey, ServedBy,
    Time,
};

/// Limit of the prompt tokens in a sibling's placement: no engine computes longer prompts.
const PLACEMENT_TOKENS_MAX: u32 = 1 << 21;
constants! {
    /// Expected share of the requests with a preferred replica that are dispatched to it; the others go to another replica.
    PREFERRED_SHARE: f64 = 0.5;
    /// The shortest wait for a busy replica, in seconds: about the time until its next probe.
    WAIT_S_MIN: f64 = 0.02;
    /// Presumed time that a request occupies a replica, in seconds.
    SERVICE_S: f64 = 1.0;
}

/// State of a pool that decisions read.
#[derive(Debug)]
pub(crate) struct PoolState {
    pub(crate) config: PoolConfig,
    /// The time of the last event.
    pub(crate) now: Time,
    pub(crate) is_shutting_down: bool,
    pub(crate) replicas: Replicas,
    pub(crate) adapters: Adapters,
    pub(crate) caches: Caches,
    pub(crate) queue: Queue,
    pub(crate) tenants: TenantTable,
    pub(crate) peers: PeerTable,
    pub(crate) in_flight: BTreeMap<RequestId, InFlightRequest>,
    /// Learned time that a request occupies a replica, in seconds; `None` before one has ended.
    pub(crate) service_s: Option<f64>,
    pub(crate) quarantine: Quarantine,
    pub(crate) gate: BatchGate,
}

impl PoolState {
    pub(crate) fn new(config: PoolConfig, seed: u64) -> Self {
        let [_, of_peers] = index_limits(config.index, false);
        Self {
            now: Time::ZERO,
            is_shutting_down: false,
            replicas: Replicas::new(config.push, config.probe_stale_after),
            adapters: Adapters::new(config.adapter_slots, config.adapter_load),
            caches: Caches::new(config.index, seed),
            queue: Queue::default(),
            tenants: TenantTable::default(),
            peers: PeerTable::new(config.region, of_peers, seed),
            in_flight: BTreeMap::new(),
            service_s: None,
            quarantine: Quarantine::default(),
            gate: BatchGate::default(),
            config,
        }
    }

    /// Divides the memory for indexes anew, after a change of the configuration or of the peers.
    pub(crate) fn divide_index_memory(&mut self) {
        let (limits, has_peers) = (self.config.index, !self.peers.is_empty());
        self.caches.set_limits(limits, has_peers);
        let [_, of_peers] = index_limits(limits, has_peers);
        self.peers.set_rules(self.config.region, of_peers, self.now);
    }

    pub(crate) fn add_peer(&mut self, peer: PeerId, name: String) {
        self.peers.add(peer, name, self.now);
        self.divide_index_memory();
    }

    pub(crate) fn remove_peer(&mut self, peer: PeerId) {
        self.peers.remove(peer, self.now);
        self.divide_index_memory();
    }

    /// Lets time pass, in which probes, reports and trials become due, and parts of the indexes are forgotten.
    pub(crate) fn advance(&mut self, now: Time) {
        self.set_now(now);
        self.replicas.expire(self.now);
        self.peers.expire(self.now);
        self.caches.forget_more();
        self.caches.index.evict_excess();
        self.peers.index.evict_excess();
    }

    /// Sets the time, which never goes back.
    pub(crate) fn set_now(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.queue.set_now(self.now);
    }

    /// Objective for the time to first token of a request.
    pub(crate) fn ttft_slo_of(&self, request: &Request) -> Duration {
        let budget = self
            .config
            .tiers
            .as_ref()
            .map(|tiers| request.budget(tiers));
        budget.unwrap_or(self.config.ttft_slo)
    }

    /// The queued request that expires first, and the time of its expiry.
    pub(crate) fn next_expiry(&self) -> Option<(Time, QueueSeq)> {
        let config = &self.config;
        self.queue
            .next_expiry(config.queue.wait_max, config.tiers.as_ref())
    }

    /// Time until a busy replica can be sent a request, beyond its queued prefill and behind the requests that wait for it, in
    /// seconds.
    #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
    pub(crate) fn turn_s(&self, replica: ReplicaIndex) -> f64 {
        let ahead = self.queue.preferring(replica) as f64;
        let turn = WAIT_S_MIN.get() + self.replicas.work_s();
        (1.0 + PREFERRED_SHARE.get() * ahead) * turn
    }

    /// Time that a request occupies a replica.
    fn service(&self) -> Duration {
        let service_s = self.service_s.unwrap_or(SERVICE_S.get());
        Duration::try_from_secs_f64(service_s).unwrap_or_default()
    }

    /// Registers a request that a sibling dispatched, with so many prompt tokens to compute, if it told them.
    pub(crate) fn on_sibling_push(&mut self, replica: ReplicaIndex, tokens: Option<u32>) {
        let tokens = tokens.map(|tokens| f64::from(tokens.min(PLACEMENT_TOKENS_MAX)));
        let service = self.service();
        let replicas = &mut self.replicas;
        replicas.on_sibling_push(replica, tokens, service, self.now);
    }

    /// Applies a probe: the load that it showed, or none if the replica answered it without metrics. Returns whether it is newer than
    /// the last one.
    pub(crate) fn on_probe(&mut self, replica: ReplicaId, load: Option<Load>, sent: Time) -> bool {
        let service = self.service();
        let replicas = &mut self.replicas;
        replicas.on_probe(replica, load, sent, service, self.now)
    }

    /// Records the replica that may store the response to a request in flight.
    pub(crate) fn on_stored(&mut self, id: RequestId, served_by: ServedBy, response: ResponseKey) {
        if let Some(flight) = self.in_flight.get(&id)
            && let Some(replica) = served_by.server(flight.claim.replica)
        {
            let stored = &mut self.caches.stored;
            stored.record(flight.request.tenant, response, replica);
        }
    }

    /// Orders the queue by the configuration, and by whether the policy puts requests past the SLO last.
    pub(crate) fn set_line_rules(&mut self, past_slo_last: bool) {
        let rules = LineRules::new(&self.config, past_slo_last);
        self.queue.set_rules(rules, self.config.tiers.is_some());
    }

    /// Forgets what the cache of a replica held.
    pub(crate) fn on_cache_emptied(&mut self, id: ReplicaId) {
        if let Some(replica) = self.replicas.slot_of(id) {
            self.caches.on_emptied(id, replica);
        }
    }

    /// Replaces the list of adapters of a replica.
    pub(crate) fn list_adapters(&mut self, id: ReplicaId, adapters: Vec<AdapterKey>) {
        if let Some(replica) = self.replicas.slot_of(id) {
            self.adapters.list(replica, adapters);
        }
    }

    /// Applies a replica's report on its adapters.
    pub(crate) fn report_adapters(&mut self, id: ReplicaId, report: &AdapterReport, sent: Time) {
        if let Some(replica) = self.replicas.slot_of(id) {
            let (sent, now) = (sent.min(self.now), self.now);
            self.adapters.report(replica, report, sent, now);
        }
    }

    /// Cost of an adapter on a replica, and of the loads that are under way there.
    pub(crate) fn adapter_cost(
        &self,
        replica: ReplicaIndex,
        adapter: Option<AdapterKey>,
    ) -> AdapterCost {
        let cost = adapter.map(|adapter| {
            let adapters = &self.adapters;
            let service_s = self.service_s.unwrap_or(SERVICE_S.get());
            adapters.cost(replica, adapter, service_s)
        });
        let mut cost = cost.unwrap_or_default();
        cost.wait_s += self.adapters.loading_s(replica, self.now);
        cost
    }
}
