//! The state of a pool that decisions read. Decisions borrow it; only the handling of events changes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use isotherm_fingerprint::Fingerprint;

use crate::forwarding::{ForwardedTable, ForwardingCost, PeerTable};
use crate::index::{Answers, PredictionRecord, PrefixIndex, Sessions};
use crate::policy::View;
use crate::queue::Queue;
use crate::replica::{BreakerPermit, Replicas};
use crate::replica_index::ReplicaSet;
use crate::{ReplicaId, RequestId, RouterConfig, SessionKey, Time};

/// The state of a pool.
#[derive(Debug)]
pub(super) struct PoolState {
    pub(super) config: RouterConfig,
    /// The time of the last event.
    pub(super) now: Time,
    pub(super) is_shutting_down: bool,
    pub(super) replicas: Replicas,
    pub(super) index: PrefixIndex,
    pub(super) answers: Answers,
    pub(super) sessions: Sessions,
    pub(super) queue: Queue,
    pub(super) peers: PeerTable,
    pub(super) in_flight: BTreeMap<RequestId, InFlightRequest>,
    pub(super) forwarded: ForwardedTable,
    /// Learned time that a request occupies a replica, in seconds; `None` before one has ended.
    pub(super) service_s: Option<f64>,
}

/// A request that was dispatched to a replica.
#[derive(Debug)]
pub(super) struct InFlightRequest {
    pub(super) replica: ReplicaId,
    pub(super) permit: BreakerPermit,
    pub(super) dispatched_at: Time,
    pub(super) fingerprint: Arc<Fingerprint>,
    pub(super) session: Option<SessionKey>,
    pub(super) matched_bytes: u32,
    pub(super) recorded: PredictionRecord,
    /// Estimated prompt tokens that the replica had to compute first.
    pub(super) ahead_tokens: f64,
    /// Estimated tokens of an earlier answer behind the match.
    pub(super) answer_tokens: f64,
    /// Estimated uncached tokens, without regard to the session.
    pub(super) uncached_tokens: f64,
    /// Whether the request went to the last replica of its session; `None` for a new session.
    pub(super) followed_session: Option<bool>,
    /// Requests in flight on the replica, this one included.
    pub(super) outstanding: u32,
}

impl PoolState {
    pub(super) fn new(config: RouterConfig, seed: u64) -> Self {
        Self {
            now: Time::ZERO,
            is_shutting_down: false,
            replicas: Replicas::new(config.push, config.probe_stale_after),
            index: PrefixIndex::new(config.index, seed),
            answers: Answers::new(seed),
            sessions: Sessions::new(seed),
            queue: Queue::default(),
            peers: PeerTable::new(config.region, config.index, seed),
            in_flight: BTreeMap::new(),
            forwarded: ForwardedTable::default(),
            service_s: None,
            config,
        }
    }

    /// The view of a policy on a request that has not waited.
    pub(super) const fn view<'a>(&'a self, candidates: &'a ReplicaSet) -> View<'a> {
        View {
            replicas: &self.replicas,
            index: &self.index,
            candidates,
            queue: &self.queue,
            answers: &self.answers,
            sessions: &self.sessions,
            service_s: self.service_s,
            ttft_slo_s: self.config.ttft_slo.as_secs_f64(),
            waited_s: 0.0,
            delayed_s: 0.0,
            now: self.now,
        }
    }

    pub(super) fn forwarding_cost(&self, ignores_prefixes: bool) -> ForwardingCost<'_> {
        ForwardingCost {
            replicas: &self.replicas,
            index: &self.index,
            ignores_prefixes,
            service_s: self.service_s,
            in_flight: self.in_flight.len(),
        }
    }
}
