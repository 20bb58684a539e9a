//! Decisions: where a request goes, whether it waits, and why it is rejected. A decision does not change the pool.
//!
//! A decision has two halves. [`decide_at_once`] finds a replica or a cheaper peer. [`decide_on_wait`] is for a request that would wait: a
//! peer, any free replica instead of a rejection, a rejection, or the queue. Arrivals and explanations share both.

use std::borrow::Cow;

use super::regions::{peer_of_startable, peer_of_waiting};
use super::routing::{AvailableTargets, RoutingDecision};
use crate::constant::constants;
use crate::policy::{Dispatch, Policy, Selection, View};
use crate::pool_state::PoolState;
use crate::quarantine::Restriction;
use crate::queue::{Band, QueuedRequest};
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::{Reason, RejectReason, Request, Scope};

/// Bound on the memory of restricted requests in the queue: pairs of a request and a replica that may serve it.
const PINS_MAX: usize = 1 << 20;
constants! {
    /// Share of the pool's memory for KV caches in use from which the share of a tenant is bounded. Guards: no tenant is
    /// refused for its share while the pool has room.
    BUSY_FROM: f64 = 0.5;
}

/// Decides on an arriving request before it would wait.
pub(super) fn decide_at_once(
    pool: &PoolState,
    policy: &dyn Policy,
    queued: &QueuedRequest,
    at: AvailableTargets<'_>,
) -> RoutingDecision {
    if let Some(reason) = rejection(pool, queued, at.replicas) {
        return RoutingDecision::Reject(reason);
    }
    if at.is_serving {
        return RoutingDecision::Wait(None);
    }
    let routing = route(pool, policy, queued, false, at.replicas);
    let peer = peer_of_startable(pool, policy, queued, &routing, at);
    peer.map_or(routing, RoutingDecision::Forward)
}

/// Decides on an arriving request that would wait.
pub(super) fn decide_on_wait(
    pool: &PoolState,
    policy: &dyn Policy,
    queued: &QueuedRequest,
    preferred: Option<ReplicaIndex>,
    at: AvailableTargets<'_>,
) -> RoutingDecision {
    let rejection = wait_rejection(pool, queued);
    // A free replica that the policy did not select is better than a rejection.
    if rejection.is_some()
        && let dispatch @ RoutingDecision::Dispatch(_) =
            route(pool, policy, queued, true, at.replicas)
    {
        return dispatch;
    }
    if let Some(target) = peer_of_waiting(pool, policy, queued, pool.queue.waiting_len(), at) {
        return RoutingDecision::Forward(target);
    }
    rejection.map_or(RoutingDecision::Wait(preferred), RoutingDecision::Reject)
}

/// Routes a request to an available replica. A request that `must_go` does not wait for a particular replica.
pub(super) fn route(
    pool: &PoolState,
    policy: &dyn Policy,
    queued: &QueuedRequest,
    must_go: bool,
    available: &ReplicaSet,
) -> RoutingDecision {
    let candidates = &*allowed(queued.pinned.as_deref(), available);
    if candidates.is_empty() {
        return RoutingDecision::Wait(None);
    }
    let view = pool.view_of(queued, candidates);
    let preferred = match policy.select_replica(&queued.request, &view) {
        Some(Selection::Dispatch(dispatch)) if candidates.contains(dispatch.replica) => {
            return RoutingDecision::Dispatch(dispatch);
        }
        Some(Selection::WaitFor(replica)) => Some(replica),
        Some(Selection::Dispatch(_)) | None => None,
    };
    let least_loaded = must_go.then(|| dispatch_least_loaded(&view)).flatten();
    least_loaded.map_or(RoutingDecision::Wait(preferred), RoutingDecision::Dispatch)
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

/// The reason for which an arriving request gets no replica, whether or not one is free.
pub(super) fn rejection(
    pool: &PoolState,
    queued: &QueuedRequest,
    available: &ReplicaSet,
) -> Option<RejectReason> {
    let (tenants, limits) = (&pool.tenants, pool.config.tenants.as_ref());
    let slot = queued.charge.slot;
    let is_empty = pool.replicas.staying().is_empty() && !pool.config.starts_from_zero;
    let has_peer = || {
        let tried = queued.request.tried();
        tried.is_some_and(|tried| pool.peers.has_replicas(tried, pool.now))
    };
    let exceeds_limits = || {
        tenants.has_in_flight_max(slot, limits)
            || tenants.exceeds_share(slot, limits) && is_busy(pool, available)
    };
    if pool.is_shutting_down {
        Some(RejectReason::ShuttingDown)
    } else if is_empty && !has_peer() {
        Some(RejectReason::NoReplica)
    } else if queued.pinned.as_deref().is_some_and(<[_]>::is_empty) {
        Some(RejectReason::EmptySubset)
    } else if !queued.is_requeued() && exceeds_limits() {
        Some(RejectReason::TenantLimit)
    } else {
        None
    }
}

/// Whether half of the pool's memory for KV caches is in use, or no replica is available where engines do not show it.
fn is_busy(pool: &PoolState, available: &ReplicaSet) -> bool {
    match pool.replicas.memory_use_of_pool() {
        Some(of_pool) => of_pool.share >= BUSY_FROM.get(),
        None => available.is_empty(),
    }
}

/// The reason for which an arriving request may not wait. A full queue does not reject a returned request.
pub(super) fn wait_rejection(pool: &PoolState, queued: &QueuedRequest) -> Option<RejectReason> {
    let (config, queue) = (&pool.config, &pool.queue);
    let wait_max = config.wait_max(queued.waits_as());
    // A held request gives way to one of the first band.
    let gives_way = queued.band == Band::Waiting && queue.held_len() > 0;
    let is_full = queue.len() >= config.queue.length_max && !gives_way;
    let pins = queued.pinned.as_ref().map_or(0, |pinned| pinned.len());
    let has_room = queue.pins() + pins <= PINS_MAX;
    let forwarded_max = usize::try_from(config.region.queue_max).unwrap_or(usize::MAX);
    if queued.request.scope == Scope::Forwarded && queue.waiting_len() > forwarded_max {
        Some(RejectReason::RegionFull)
    } else if queued.entered.after(wait_max) <= pool.now {
        Some(RejectReason::WaitedTooLong)
    } else if !queued.is_requeued() && is_full || !has_room {
        Some(RejectReason::QueueFull)
    } else {
        None
    }
}

/// The replicas that the gateway, its adapter or its client's quarantine restricts a request to, as far as they take new requests.
pub(super) fn pinned(pool: &PoolState, request: &Request) -> Option<Box<[ReplicaIndex]>> {
    let pinned = pinned_by_gateway(pool, request);
    let period = pool.config.quarantine;
    let restriction = pool.quarantine.restriction_of(request, period, pool.now);
    let Some(Restriction::To(replica)) = restriction else {
        return pinned;
    };
    let replicas = &pool.replicas;
    let only = replicas
        .slot_of(replica)
        .filter(|only| replicas.staying().contains(*only))
        .filter(|only| pinned.as_deref().is_none_or(|pinned| pinned.contains(only)));
    only.map_or(pinned, |only| Some([only].into()))
}

fn pinned_by_gateway(pool: &PoolState, request: &Request) -> Option<Box<[ReplicaIndex]>> {
    let replicas = &pool.replicas;
    let listers = pool.adapters.listers(request);
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
