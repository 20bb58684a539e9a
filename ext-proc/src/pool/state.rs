//! The state that a pool's lock guards: the router, the membership, and the queued requests.
//!
//! Effects leave the router under the lock that fed it the event. A reply is therefore built from the membership that
//! the router decided on, and every queued request is answered once. [`PendingReplies::send`] hands the replies over
//! after the lock is released.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use isotherm_router::{
    Decision, Effect, Event, ForwardDecision, RejectReason, ReplicaId, Request, RequestId, Role,
    Router, Time,
};
use tokio::sync::{Notify, oneshot};

use super::decision::{ForwardRoute, PoolDecision, Route, Submission};
use super::membership::{Membership, MembershipError, ReplicaLease};
use super::peer_table::PeerTable;
use super::request::RouteRequest;
use super::tenants::TenantNames;
use crate::pool::Endpoint;

/// Replies to queued requests, and news of hung replicas, to be sent without the lock.
#[must_use = "a queued request gets its reply only when it is sent"]
#[derive(Debug, Default)]
pub(crate) struct PendingReplies {
    replies: Vec<(oneshot::Sender<PoolDecision>, PoolDecision)>,
    pub(crate) hung: Vec<HungReplica>,
}

/// A replica that was found to hang.
#[derive(Debug)]
pub(crate) struct HungReplica {
    pub(crate) endpoint: Endpoint,
    /// Number of its requests that the frontends are to end.
    pub(crate) abandoned: usize,
}

impl PendingReplies {
    /// Sends every reply. A client that left in the meantime has released its request by dropping the guard.
    pub(crate) fn send(self) {
        for (queued, decision) in self.replies {
            drop(queued.send(decision));
        }
    }
}

#[derive(Debug)]
pub(crate) struct PoolState {
    pub(crate) router: Router,
    pub(crate) membership: Membership,
    /// The regions, if there are others.
    pub(crate) peer_table: Option<Arc<PeerTable>>,
    /// Members without a completed probe, successful or not.
    pub(crate) unprobed: BTreeSet<ReplicaId>,
    /// Idle replicas, whose probes rest until a request goes there.
    resting: HashMap<ReplicaId, Arc<Notify>>,
    queued: HashMap<RequestId, oneshot::Sender<PoolDecision>>,
    /// Requests that their frontend is to end, with the hung replica of each.
    abandoned: HashMap<RequestId, Endpoint>,
    replies: PendingReplies,
    /// Names of the tenants.
    pub(super) tenants: TenantNames,
    next_request: u64,
    /// Whether another region decides about this region's own replicas.
    pub(super) is_suspended: bool,
}

impl PoolState {
    /// Creates the state of a pool without replicas.
    pub(crate) fn new(router: Router) -> Self {
        Self {
            router,
            membership: Membership::default(),
            peer_table: None,
            unprobed: BTreeSet::new(),
            resting: HashMap::new(),
            queued: HashMap::new(),
            abandoned: HashMap::new(),
            replies: PendingReplies::default(),
            tenants: TenantNames::default(),
            next_request: 0,
            is_suspended: false,
        }
    }

    pub(crate) fn add_replica(
        &mut self,
        now: Time,
        addr: SocketAddr,
        role: Role,
        lease: Option<ReplicaLease>,
    ) -> Result<ReplicaId, MembershipError> {
        let replica = self.membership.add(addr, role, lease)?;
        self.unprobed.insert(replica);
        let event = Event::Added {
            replica,
            name: addr.to_string(),
            role,
        };
        self.router.handle(now, event);
        if lease.is_none() && self.is_suspended {
            self.router.handle(now, Event::Draining(replica));
        }
        Ok(replica)
    }

    /// Tells the router that a replica has left the membership.
    pub(crate) fn on_replica_removed(&mut self, now: Time, replica: ReplicaId) {
        self.unprobed.remove(&replica);
        self.resting.remove(&replica);
        self.router.handle(now, Event::Removed(replica));
    }

    /// Lets the probes of an idle replica rest. Returns what wakes them; `None` while the replica has a request.
    pub(crate) fn rest(&mut self, replica: ReplicaId) -> Option<Arc<Notify>> {
        let is_idle = self.router.is_idle(replica);
        is_idle.then(|| Arc::clone(self.resting.entry(replica).or_default()))
    }

    /// Wakes the probes of a replica that gets a request.
    pub(crate) fn wake(&mut self, replica: ReplicaId) {
        if let Some(resting) = self.resting.remove(&replica) {
            resting.notify_one();
        }
    }

    pub(crate) fn submit(&mut self, now: Time, request: &RouteRequest) -> (RequestId, Submission) {
        self.tenants.note(request, &self.router);
        let request = self.resolve(now, request);
        let id = request.id;
        // 2^64 requests do not happen.
        self.next_request = self.next_request.wrapping_add(1);
        self.router.handle(now, Event::Arrived(request));
        let submission = match self.collect_replies(Some(id)) {
            Some(decision) => Submission::Decided(decision),
            None => {
                let (sender, receiver) = oneshot::channel();
                self.queued.insert(id, sender);
                Submission::Queued(receiver)
            }
        };
        (id, submission)
    }

    /// Builds the router's request: gives it the next id, and replaces addresses by replica ids.
    pub(crate) fn resolve(&self, now: Time, request: &RouteRequest) -> Request {
        Request {
            id: RequestId(self.next_request),
            fingerprint: request.fingerprint.clone(),
            session: request.session,
            previous_response: request.previous_response,
            tenant: request.tenant_id(),
            tier: request.tier,
            ttft_slo: request.ttft_slo,
            deadline: request.time_left.map(|left| now.after(left)),
            prompt_tokens: request.prompt_tokens,
            output_tokens_max: request.output_tokens_max,
            adapter: request.adapter,
            scope: request.scope.clone(),
            tells_start: request.tells_start,
            api: request.api,
            wants_stream: request.wants_stream,
            subset: request.subset.as_ref().map(|endpoints| {
                let ids = endpoints
                    .iter()
                    .flat_map(|named| self.membership.named(*named));
                ids.collect()
            }),
        }
    }

    /// Forgets a request that has ended, or whose client has left.
    pub(crate) fn forget(&mut self, id: RequestId) {
        self.queued.remove(&id);
        self.abandoned.remove(&id);
    }

    /// The hung replica of a request that its frontend is to end; returned once.
    pub(crate) fn take_abandoned(&mut self, id: RequestId) -> Option<Endpoint> {
        self.abandoned.remove(&id)
    }

    fn abandon(&mut self, replica: ReplicaId, requests: &[RequestId]) {
        let Some(endpoint) = self.membership.endpoint_of(replica).cloned() else {
            return;
        };
        let abandoned = requests.iter().map(|id| (*id, endpoint.clone()));
        self.abandoned.extend(abandoned);
        self.replies.hung.push(HungReplica {
            endpoint,
            abandoned: requests.len(),
        });
    }

    /// Takes the effects out of the router, and returns the replies to queued requests.
    pub(crate) fn take_replies(&mut self) -> PendingReplies {
        self.collect_replies(None);
        std::mem::take(&mut self.replies)
    }

    /// Takes the effects out of the router. Returns the decision on `submitted`, which is not queued yet.
    pub(crate) fn collect_replies(&mut self, submitted: Option<RequestId>) -> Option<PoolDecision> {
        let mut decided = None;
        while let Some(effect) = self.router.poll_effect() {
            let Some((id, decision)) = self.decision_of(effect) else {
                continue;
            };
            if Some(id) == submitted {
                decided = Some(decision);
            } else if let Some(queued) = self.queued.remove(&id) {
                self.replies.replies.push((queued, decision));
            }
        }
        decided
    }

    /// The decision that an effect holds, if it holds one.
    fn decision_of(&mut self, effect: Effect) -> Option<(RequestId, PoolDecision)> {
        // Membership and peer table change only together with the router, so they know whatever it chose.
        let unknown_target = PoolDecision::Reject {
            reason: RejectReason::NoReplica,
            retry_after: Duration::from_secs(1),
        };
        Some(match effect {
            Effect::Dispatch(id, decision) => {
                self.wake(decision.replica);
                if let Some(prefiller) = decision.prefiller {
                    self.wake(prefiller);
                }
                let route = self.route(decision).map(PoolDecision::Dispatch);
                (id, route.unwrap_or(unknown_target))
            }
            Effect::Forward(id, forwarding) => {
                let route = self.forward_route(forwarding).map(PoolDecision::Forward);
                (id, route.unwrap_or(unknown_target))
            }
            Effect::Reject {
                id,
                reason,
                retry_after,
            } => {
                let decision = PoolDecision::Reject {
                    reason,
                    retry_after,
                };
                (id, decision)
            }
            Effect::Hung { replica, abandoned } => {
                self.abandon(replica, &abandoned);
                return None;
            }
        })
    }

    fn route(&self, decision: Decision) -> Option<Route> {
        let endpoint_of = |id: &ReplicaId| self.membership.endpoint_of(*id).cloned();
        Some(Route {
            chosen: endpoint_of(&decision.replica)?,
            fallbacks: decision.fallbacks.iter().filter_map(endpoint_of).collect(),
            prefiller: decision.prefiller.as_ref().and_then(endpoint_of),
            lease: self.lease_of(decision.replica),
            decision,
        })
    }

    /// Owner and revision of the lease of a leased replica.
    fn lease_of(&self, replica: ReplicaId) -> Option<Box<(Arc<str>, u64)>> {
        // A pool without other regions looks nothing up.
        let peers = self.peer_table.as_ref()?;
        let lease = self.membership.lease_of(replica)?;
        let peer = peers.get(lease.owner)?;
        Some(Box::new((Arc::clone(&peer.name), lease.revision)))
    }

    fn forward_route(&self, forwarding: ForwardDecision) -> Option<ForwardRoute> {
        let peer_table = self.peer_table.as_ref()?;
        Some(ForwardRoute {
            peer: peer_table.get(forwarding.peer)?.clone(),
            peer_table: Arc::clone(peer_table),
            forwarding,
        })
    }
}
