//! Decisions: where a request goes, whether it waits, and why it is rejected. A decision does not change the pool.
//!
//! [`Router::decide`] serves arrivals and explanations alike, in two halves. The first half finds a replica or a cheaper peer.
//! The second half is for a request that would wait: a peer, any free replica instead of a rejection, a rejection, or the
//! queue.

use std::borrow::Cow;

use super::Router;
use crate::constant::constants;
use crate::forwarding::{ChosenRegion, ForwardTarget};
use crate::policy::{Dispatch, Selection, View};
use crate::quarantine::Restriction;
use crate::queue::{Band, QueuedRequest};
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::tenants::TenantSlot;
use crate::{Reason, RejectReason, Request, Scope};

/// Bound on the memory of restricted requests in the queue: pairs of a request and a replica that may serve it.
const PINS_MAX: usize = 1 << 20;
constants! {
    /// Share of the pool's memory for KV caches in use from which the share of a tenant is bounded. Guards: no tenant is
    /// refused for its share while the pool has room.
    BUSY_FROM: f64 = 0.5;
}

pub(super) enum RoutingDecision {
    Dispatch(Dispatch),
    Forward(ForwardTarget),
    Reject(RejectReason),
    Wait(Option<ReplicaIndex>),
}

/// The replicas and peers that are available at the time of a decision.
#[derive(Clone, Copy)]
pub(super) struct AvailableTargets<'a> {
    pub(super) replicas: &'a ReplicaSet,
    pub(super) peers: &'a ReplicaSet,
}

impl Router {
    pub(super) fn available_targets(&self) -> AvailableTargets<'_> {
        AvailableTargets {
            replicas: self.pool.replicas.available(),
            peers: self.pool.peers.available(),
        }
    }

    /// Decides on a request as if it arrived.
    pub(super) fn decide(
        &self,
        queued: &QueuedRequest,
        at: AvailableTargets<'_>,
    ) -> RoutingDecision {
        if queued.band == Band::Held {
            return self.decide_held(queued, at);
        }
        match self.decide_at_once(queued, at) {
            RoutingDecision::Wait(preferred) => self.decide_on_wait(queued, preferred, at),
            decided => decided,
        }
    }

    /// Decides on an arriving request before it would wait.
    pub(super) fn decide_at_once(
        &self,
        queued: &QueuedRequest,
        at: AvailableTargets<'_>,
    ) -> RoutingDecision {
        if let Some(reason) = self.rejection(queued, at.replicas) {
            return RoutingDecision::Reject(reason);
        }
        if self.service.is_pending() {
            // Queued requests take the freed replicas first.
            return RoutingDecision::Wait(None);
        }
        let routing = self.route(queued, false, at.replicas);
        if at.peers.is_empty() {
            return routing;
        }
        match self.choose_region(queued, at.peers) {
            Some(ChosenRegion::Peer(target)) => {
                return if self.is_cheaper_here(queued, &routing, &target, at) {
                    routing
                } else {
                    RoutingDecision::Forward(target)
                };
            }
            Some(ChosenRegion::Own) => return routing,
            None => {}
        }
        match self.find_cheaper_peer(queued, &routing, at) {
            Some(target) => RoutingDecision::Forward(target),
            None => routing,
        }
    }

    /// Decides on an arriving request that would wait.
    pub(super) fn decide_on_wait(
        &self,
        queued: &QueuedRequest,
        preferred: Option<ReplicaIndex>,
        at: AvailableTargets<'_>,
    ) -> RoutingDecision {
        let rejection = self.wait_rejection(queued);
        // A free replica that the policy did not select is better than a rejection.
        if rejection.is_some()
            && let RoutingDecision::Dispatch(dispatch) = self.route(queued, true, at.replicas)
        {
            return RoutingDecision::Dispatch(dispatch);
        }
        if let Some(target) = self.find_peer(queued, self.pool.queue.waiting_len(), at) {
            return RoutingDecision::Forward(target);
        }
        rejection.map_or(RoutingDecision::Wait(preferred), RoutingDecision::Reject)
    }

    /// Routes a request to an available replica. A request that `must_go` does not wait for a particular replica.
    pub(super) fn route(
        &self,
        queued: &QueuedRequest,
        must_go: bool,
        available: &ReplicaSet,
    ) -> RoutingDecision {
        let candidates = &*allowed(queued.pinned.as_deref(), available);
        if candidates.is_empty() {
            return RoutingDecision::Wait(None);
        }
        let view = self.pool.view_of(queued, candidates);
        let preferred = match self.policy.select_replica(&queued.request, &view) {
            Some(Selection::Dispatch(dispatch)) if candidates.contains(dispatch.replica) => {
                return RoutingDecision::Dispatch(dispatch);
            }
            Some(Selection::WaitFor(replica)) => Some(replica),
            Some(Selection::Dispatch(_)) | None => None,
        };
        let least_loaded = must_go.then(|| dispatch_least_loaded(&view)).flatten();
        least_loaded.map_or(RoutingDecision::Wait(preferred), RoutingDecision::Dispatch)
    }

    pub(super) fn rejection(
        &self,
        queued: &QueuedRequest,
        available: &ReplicaSet,
    ) -> Option<RejectReason> {
        let (tenants, limits) = (&self.pool.tenants, self.pool.config.tenants.as_ref());
        let is_empty =
            self.pool.replicas.staying().is_empty() && !self.pool.config.starts_from_zero;
        let exceeds_limits = || {
            tenants.has_in_flight_max(queued.tenant, limits)
                || self.exceeds_share(queued.tenant, available)
        };
        if self.pool.is_shutting_down {
            Some(RejectReason::ShuttingDown)
        } else if is_empty && !self.may_be_served_elsewhere(&queued.request) {
            Some(RejectReason::NoReplica)
        } else if queued.pinned.as_deref().is_some_and(<[_]>::is_empty) {
            Some(RejectReason::EmptySubset)
        } else if !queued.is_requeued() && exceeds_limits() {
            Some(RejectReason::TenantLimit)
        } else {
            None
        }
    }

    /// Whether a tenant has more than its share of the requests or of the tokens of a busy pool.
    fn exceeds_share(&self, tenant: TenantSlot, available: &ReplicaSet) -> bool {
        let limits = self.pool.config.tenants.as_ref();
        self.pool.tenants.exceeds_share(tenant, limits) && self.is_busy(available)
    }

    /// Whether half of the pool's memory for KV caches is in use, or no replica is available where engines do not show it.
    fn is_busy(&self, available: &ReplicaSet) -> bool {
        match self.pool.replicas.memory_use_of_pool() {
            Some(of_pool) => of_pool.share >= BUSY_FROM.get(),
            None => available.is_empty(),
        }
    }

    /// The reason for which an arriving request may not wait. A full queue does not reject a returned request.
    pub(super) fn wait_rejection(&self, queued: &QueuedRequest) -> Option<RejectReason> {
        let config = &self.pool.config;
        let wait_max = config.wait_max(queued.waits_as());
        let (length, waiting) = (self.pool.queue.len(), self.pool.queue.waiting_len());
        // A held request gives way to one of the first band.
        let gives_way = queued.band == Band::Waiting && self.pool.queue.held_len() > 0;
        let is_full = length >= config.queue.length_max && !gives_way;
        let pins = queued.pinned.as_ref().map_or(0, |pinned| pinned.len());
        let has_room = self.pool.queue.pins() + pins <= PINS_MAX;
        let forwarded_max = usize::try_from(config.region.queue_max).unwrap_or(usize::MAX);
        if queued.request.scope == Scope::Forwarded && waiting > forwarded_max {
            Some(RejectReason::RegionFull)
        } else if queued.entered.after(wait_max) <= self.pool.now {
            Some(RejectReason::WaitedTooLong)
        } else if !queued.is_requeued() && is_full || !has_room {
            Some(RejectReason::QueueFull)
        } else {
            None
        }
    }

    /// The replicas that the gateway, its adapter or its client's quarantine restricts a request to, as far as they take new requests.
    pub(super) fn pinned(&self, request: &Request) -> Option<Box<[ReplicaIndex]>> {
        let pinned = self.pinned_by_gateway(request);
        let Some(Restriction::To(replica)) = self.restriction_of(request) else {
            return pinned;
        };
        let replicas = &self.pool.replicas;
        let only = replicas
            .slot_of(replica)
            .filter(|only| replicas.staying().contains(*only))
            .filter(|only| pinned.as_deref().is_none_or(|pinned| pinned.contains(only)));
        only.map_or(pinned, |only| Some([only].into()))
    }

    fn pinned_by_gateway(&self, request: &Request) -> Option<Box<[ReplicaIndex]>> {
        let replicas = &self.pool.replicas;
        let listers = self.pool.adapters.listers(request);
        let lists = |replica: ReplicaIndex| listers.is_none_or(|set| set.contains(replica));
        let Some(subset) = request.subset.as_deref() else {
            let listers = listers.filter(|listers| !replicas.staying().is_within(listers))?;
            return Some(listers.intersection(replicas.staying()).iter().collect());
        };
        let mut pinned: Vec<ReplicaIndex> = subset
            .iter()
            .filter_map(|id| replicas.slot_of(*id))
            .filter(|replica| replicas.staying().contains(*replica) && lists(*replica))
            .collect();
        pinned.sort_unstable();
        pinned.dedup();
        Some(pinned.into())
    }
}

/// The dispatch of a request that the policy would let wait, and that must not.
#[cold]
fn dispatch_least_loaded(view: &View<'_>) -> Option<Dispatch> {
    Some(Dispatch {
        replica: view.least_loaded(&[])?,
        reason: Reason::LeastLoaded,
        matched: None,
    })
}

/// The members of a set that a request may go to, which `pinned` may restrict.
pub(super) fn allowed<'a>(
    pinned: Option<&[ReplicaIndex]>,
    among: &'a ReplicaSet,
) -> Cow<'a, ReplicaSet> {
    let Some(pinned) = pinned else {
        return Cow::Borrowed(among);
    };
    let mut allowed = ReplicaSet::default();
    for replica in pinned {
        allowed.set(*replica, among.contains(*replica));
    }
    Cow::Owned(allowed)
}
