//! The state of a pool that decisions read. Decisions borrow it; only the handling of events changes it.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use isotherm_fingerprint::{Api, Fingerprint};

use crate::adapters::{AdapterCost, Adapters};
use crate::config::PoolConfig;
use crate::constant::constants;
use crate::forwarding::{ForwardedTable, PeerTable};
use crate::index::{
    Answers, CachedShare, PredictionRecord, PrefixIndex, Sessions, StoredResponses,
};
use crate::queue::{Queue, QueueSeq};
use crate::replica::{BacklogClaim, BreakerPermit, Replicas};
use crate::replica_index::ReplicaIndex;
use crate::tenants::{TenantSlot, TenantTable};
use crate::{
    AdapterKey, IndexLimits, Load, ReplicaId, Request, RequestId, SessionKey, TenantId, Tier, Time,
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

/// Sessions, and answers, each get one part in so many of the memory for indexes.
const SESSIONS_SHARE: usize = 16;
/// The index over peers gets one part in so many of the rest, since only overflow goes to peers.
const PEER_INDEX_SHARE: usize = 4;

/// The division of the memory for indexes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IndexShares {
    prefixes: usize,
    peers: usize,
    sessions: usize,
    answers: usize,
}

impl IndexShares {
    const fn of(bytes_max: usize, has_peers: bool) -> Self {
        let sessions = bytes_max / SESSIONS_SHARE;
        let rest = bytes_max - 2 * sessions;
        let peers = if has_peers {
            rest / PEER_INDEX_SHARE
        } else {
            0
        };
        Self {
            prefixes: rest - peers,
            peers,
            sessions,
            answers: sessions,
        }
    }
}

#[derive(Debug)]
pub(crate) struct PoolState {
    pub(crate) config: PoolConfig,
    /// The time of the last event.
    pub(crate) now: Time,
    pub(crate) is_shutting_down: bool,
    pub(crate) replicas: Replicas,
    pub(crate) adapters: Adapters,
    pub(crate) index: PrefixIndex,
    pub(crate) answers: Answers,
    pub(crate) sessions: Sessions,
    pub(crate) stored: StoredResponses,
    pub(crate) cached_share: CachedShare,
    pub(crate) queue: Queue,
    pub(crate) tenants: TenantTable,
    pub(crate) peers: PeerTable,
    pub(crate) in_flight: BTreeMap<RequestId, InFlightRequest>,
    pub(crate) forwarded: ForwardedTable,
    /// Learned time that a request occupies a replica, in seconds; `None` before one has ended.
    pub(crate) service_s: Option<f64>,
}

/// A request that was dispatched to a replica.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
    pub(crate) replica: ReplicaId,
    pub(crate) permit: BreakerPermit,
    pub(crate) claim: BacklogClaim,
    pub(crate) dispatched_at: Time,
    /// Whether the response has begun.
    pub(crate) has_begun: bool,
    /// Whether the response began with its first token, and told when that came.
    pub(crate) is_streamed: bool,
    /// Tier under which the request counts.
    pub(crate) tier: Tier,
    /// The time by which the first token is due.
    pub(crate) due: Time,
    /// Whether the driver tells when the response begins.
    pub(crate) tells_start: bool,
    /// Whether the replica hangs, and the driver was told to end the request.
    pub(crate) is_abandoned: bool,
    pub(crate) fingerprint: Arc<Fingerprint>,
    pub(crate) session: Option<SessionKey>,
    pub(crate) api: Option<Api>,
    pub(crate) tenant_id: TenantId,
    pub(crate) tenant: TenantSlot,
    /// Tokens that count for the tenant.
    pub(crate) tokens: u64,
    pub(crate) matched_bytes: u32,
    pub(crate) recorded: PredictionRecord,
    /// Prompt tokens, by the estimate of the filter.
    pub(crate) estimated_tokens: u32,
    /// Prompt tokens, by the learned length of a token.
    pub(crate) prompt_tokens: u32,
    /// Estimated prompt tokens that the replica had to compute first.
    pub(crate) ahead_tokens: f64,
    /// Estimated tokens of an earlier answer behind the match.
    pub(crate) answer_tokens: f64,
    /// Estimated uncached tokens, without regard to the session.
    pub(crate) uncached_tokens: f64,
    /// Whether the request went to the last replica of its session; `None` for a new session.
    pub(crate) followed_session: Option<bool>,
    /// Requests at the replica, this one and those of other services included.
    pub(crate) outstanding: u32,
    pub(crate) adapter: Option<AdapterKey>,
    /// Whether the replica had to load an adapter first. Its time to first token then says nothing about its prompt.
    pub(crate) is_behind_load: bool,
    /// The claim on the prefill replica that computes the prompt, if one does.
    pub(crate) prefill: Option<Box<InFlightPrefill>>,
}

/// The claim of a request on the prefill replica that computes its prompt.
#[derive(Debug)]
pub(crate) struct InFlightPrefill {
    pub(crate) replica: ReplicaId,
    pub(crate) permit: BreakerPermit,
    pub(crate) claim: BacklogClaim,
    pub(crate) recorded: PredictionRecord,
    /// Estimated prompt tokens that the replica had to compute first.
    pub(crate) ahead_tokens: f64,
    /// Share of the prompt that the replica had to compute.
    pub(crate) uncached_share: f64,
    /// Whether the response has begun.
    pub(crate) is_computed: bool,
}

impl InFlightRequest {
    /// Identity of the prompt: equal prompts have equal ones. A prompt without a block has the one of its session.
    pub(crate) fn identity(&self) -> u64 {
        let session = || self.session.map_or(0, |session| session.0);
        let last = self.fingerprint.blocks().last();
        let hash = last.map_or_else(session, |block| block.hash);
        hash ^ u64::from(self.fingerprint.total_bytes())
    }

    /// Share of the prompt that the replica was predicted to hold.
    pub(crate) fn matched_share(&self) -> f64 {
        let total = f64::from(self.fingerprint.total_bytes().max(1));
        (f64::from(self.matched_bytes) / total).min(1.0)
    }
}

impl PoolState {
    pub(crate) fn new(config: PoolConfig, seed: u64) -> Self {
        let shares = IndexShares::of(config.index.bytes_max, false);
        let of = |bytes_max| IndexLimits {
            bytes_max,
            ..config.index
        };
        Self {
            now: Time::ZERO,
            is_shutting_down: false,
            replicas: Replicas::new(config.push, config.probe_stale_after),
            adapters: Adapters::new(config.adapter_slots),
            index: PrefixIndex::new(of(shares.prefixes), seed),
            answers: Answers::new(shares.answers, seed),
            sessions: Sessions::new(shares.sessions, seed),
            stored: StoredResponses::new(seed),
            cached_share: CachedShare::default(),
            queue: Queue::default(),
            tenants: TenantTable::default(),
            peers: PeerTable::new(config.region, of(shares.peers), seed),
            in_flight: BTreeMap::new(),
            forwarded: ForwardedTable::default(),
            service_s: None,
            config,
        }
    }

    /// Divides the memory for indexes anew, after a change of the configuration or of the peers.
    pub(crate) fn divide_index_memory(&mut self) {
        let limits = self.config.index;
        let shares = IndexShares::of(limits.bytes_max, !self.peers.is_empty());
        let of = |bytes_max| IndexLimits {
            bytes_max,
            ..limits
        };
        self.index.set_limits(of(shares.prefixes));
        self.answers.set_bytes_max(shares.answers);
        self.sessions.set_bytes_max(shares.sessions);
        self.peers
            .set_rules(self.config.region, of(shares.peers), self.now);
    }

    /// Registers the memory that a dispatched request needs, where its use between probes decides anything, here or at a peer.
    pub(crate) fn occupy(&mut self, replica: ReplicaIndex, uncached_tokens: f64) {
        if self.config.tiers.is_some() || !self.peers.is_empty() {
            let tokens = uncached_tokens + self.replicas.output_tokens();
            self.replicas.occupy(replica, tokens, self.now);
        }
    }

    /// The entry of a tenant whose request arrives.
    pub(crate) fn track_tenant(&mut self, id: TenantId) -> TenantSlot {
        self.tenants.track(id, self.config.tenants.as_ref())
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

    /// Goes on with the eviction of entries beyond the bounds of both indexes.
    pub(crate) fn evict_excess(&mut self) {
        self.index.evict_excess();
        self.peers.index.evict_excess();
    }

    /// Time until a busy replica can be sent a request, beyond its queued prefill and behind the requests that wait for it, in
    /// seconds.
    #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
    pub(crate) fn turn_s(&self, replica: ReplicaIndex) -> f64 {
        let ahead = self.queue.preferring(replica) as f64;
        let turn = WAIT_S_MIN.get() + self.replicas.work_s();
        (1.0 + PREFERRED_SHARE.get() * ahead) * turn
    }

    /// Time in which a replica loads an adapter, in seconds.
    pub(crate) fn adapter_load_s(&self) -> f64 {
        self.config.adapter_load.as_secs_f64()
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

    /// Applies a probe; returns whether it is newer than the last one.
    pub(crate) fn on_probe(&mut self, replica: ReplicaId, load: Load, sent: Time) -> bool {
        let service = self.service();
        let replicas = &mut self.replicas;
        replicas.on_probe(replica, load, sent, service, self.now)
    }

    /// Applies a probe that the replica answered without metrics.
    pub(crate) fn answered_without_metrics(&mut self, replica: ReplicaId, sent: Time) {
        let service = self.service();
        let replicas = &mut self.replicas;
        replicas.answered_without_metrics(replica, sent, service, self.now);
    }

    /// Cost of an adapter on a replica, and of the loads that are under way there.
    pub(crate) fn adapter_cost(
        &self,
        replica: ReplicaIndex,
        adapter: Option<AdapterKey>,
    ) -> AdapterCost {
        let load_s = self.adapter_load_s();
        let cost = adapter.map(|adapter| {
            let adapters = &self.adapters;
            let service_s = self.service_s.unwrap_or(SERVICE_S.get());
            adapters.cost(replica, adapter, load_s, service_s)
        });
        let mut cost = cost.unwrap_or_default();
        cost.wait_s += self.adapters.loading_s(replica, self.now);
        cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_and_answers_take_their_part_of_the_memory_for_indexes() {
        let alone = IndexShares::of(1 << 28, false);
        assert_eq!((alone.sessions, alone.answers), (1 << 24, 1 << 24));
        assert_eq!((alone.prefixes, alone.peers), ((1 << 28) - (1 << 25), 0));
        let among_peers = IndexShares::of(1 << 28, true);
        assert_eq!(among_peers.prefixes + among_peers.peers, alone.prefixes);
        assert_eq!(among_peers.prefixes, 3 * among_peers.peers);
    }
}
