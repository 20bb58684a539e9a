//! Decisions on batch work (SageServe 6.2): held requests start only while the pool has capacity to spare (`gate.rs`).
//!
//! No held request starts while a request of the first band waits that an available replica could serve. A held request whose
//! deadline is near is promoted: it joins the first band as if it arrived then.
//!
//! Batch work fills one replica before the next, by name, so that every service of a pool selects the same: batch prompts push the prefixes of
//! conversations out of a replica's cache, and interactive requests leave a replica that is busy.

use super::decide::{allowed, rejection, route, wait_rejection};
use super::regions::select_peer;
use super::routing::{AvailableTargets, RoutingDecision};
use crate::constant::constants;
use crate::gate::allowance;
use crate::policy::{Dispatch, Policy};
use crate::pool_state::PoolState;
use crate::queue::{QueueSeq, QueuedRequest};
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::{BatchTier, RejectReason, ReleaseReason, Scope, Time};

/// Held requests that are looked at for a replica that suits them, at most.
const HELD_LOOKED_AT_MAX: usize = 64;
constants! {
    /// Share of a replica's memory for KV caches in use from which batch work goes to the next replica. Guards: batch work fills no replica so far
    /// that its engine preempts other requests.
    HOST_FULL: f64 = 0.8;
}

/// The rules for batch work, in a pool with tiers.
pub(super) fn batch_rules(pool: &PoolState) -> Option<&BatchTier> {
    pool.config.tiers.as_ref().map(|tiers| &tiers.batch)
}

/// Share of the pool's memory for KV caches in use, if its engines show it.
fn memory_used(pool: &PoolState) -> Option<f64> {
    Some(pool.replicas.memory_use_of_pool()?.share)
}

/// Requests that the last signal still lets start, and the reason.
pub(super) fn batch_credit(pool: &PoolState) -> (u32, ReleaseReason) {
    batch_rules(pool).map_or((0, ReleaseReason::BelowHigh), |rules| {
        pool.gate.credit(rules, memory_used(pool))
    })
}

/// The time at which the gate acts without an event.
pub(super) fn next_at_gate(pool: &PoolState) -> Option<Time> {
    let rules = batch_rules(pool)?;
    let (deadline, _) = pool.queue.next_deadline()?;
    let signal = pool.gate.next_signal(rules);
    Some(signal.min(deadline.before(rules.promote_left)))
}

/// Whether the next signal would release no request either: the pool has no capacity to spare.
pub(super) fn is_gate_shut(pool: &PoolState) -> bool {
    batch_rules(pool).is_none_or(|rules| allowance(rules, memory_used(pool)).0 == 0)
        || has_waiting_for(pool, pool.replicas.available())
}

/// Batch requests that peers may send: as many as the next signal would release here, less the held ones.
pub(super) fn offered_batch_credit(pool: &PoolState) -> u32 {
    if is_gate_shut(pool) {
        return 0;
    }
    let held = u32::try_from(pool.queue.held_len()).unwrap_or(u32::MAX);
    batch_credit(pool).0.saturating_sub(held)
}

/// Whether a request of the first band waits that an available replica could serve.
fn has_waiting_for(pool: &PoolState, available: &ReplicaSet) -> bool {
    let queue = &pool.queue;
    queue.waiting_len() > 0 && available.iter().any(|replica| queue.has_eligible(replica))
}

/// The replica that batch work goes to: the first by name with memory to spare. Empty if that replica is not available while the
/// utilisation is between the two thresholds; otherwise the first available one takes its place.
fn batch_host(
    pool: &PoolState,
    pinned: Option<&[ReplicaIndex]>,
    available: &ReplicaSet,
    reason: ReleaseReason,
) -> ReplicaSet {
    let replicas = &pool.replicas;
    let has_room = |replica: &ReplicaIndex| match replicas.memory_use(*replica) {
        Some(of_one) => of_one.share < HOST_FULL.get(),
        None => replicas.get(*replica).is_some_and(|r| r.requests() == 0),
    };
    let among = match reason {
        ReleaseReason::BelowHigh => replicas.trusted(),
        ReleaseReason::BelowLow | ReleaseReason::Promoted => available,
    };
    let allowed = allowed(pinned, among);
    let hosts = allowed.iter().filter(has_room);
    let first = hosts.min_by_key(|host| replicas.get(*host).map(|replica| &replica.name));
    let mut host = ReplicaSet::default();
    if let Some(first) = first {
        host.set(first, available.contains(first));
    }
    host
}

/// Decides on an arriving request that the gate may hold.
pub(super) fn decide_held(
    pool: &PoolState,
    policy: &dyn Policy,
    queued: &QueuedRequest,
    at: AvailableTargets<'_>,
) -> RoutingDecision {
    if let Some(reason) = rejection(pool, queued, at.replicas) {
        return RoutingDecision::Reject(reason);
    }
    let (credit, reason) = batch_credit(pool);
    let is_open = credit > 0 && !has_waiting_for(pool, at.replicas);
    if is_open && pool.queue.held_len() == 0 && !at.is_serving {
        let host = batch_host(pool, queued.pinned.as_deref(), at.replicas, reason);
        if let decided @ RoutingDecision::Dispatch(_) = route(pool, policy, queued, true, &host) {
            return decided;
        }
    }
    if is_gate_shut(pool) {
        let with_credit = pool.peers.with_batch_credit(at.peers);
        if let Some(target) = select_peer(pool, policy, &queued.request, &with_credit) {
            return RoutingDecision::Forward(target);
        }
    }
    hold_rejection(pool, queued).map_or(RoutingDecision::Wait(None), RoutingDecision::Reject)
}

/// The reason for which the gate may not hold an arriving request.
fn hold_rejection(pool: &PoolState, queued: &QueuedRequest) -> Option<RejectReason> {
    let most = batch_rules(pool).map_or(0, |rules| rules.length_max);
    if queued.request.scope == Scope::Forwarded {
        // Its own region can hold it.
        Some(RejectReason::RegionFull)
    } else if !queued.is_requeued() && pool.queue.held_len() >= most {
        Some(RejectReason::QueueFull)
    } else {
        wait_rejection(pool, queued)
    }
}

/// The held request that starts next, its replica, and the reason.
pub(super) fn next_released(
    pool: &PoolState,
    policy: &dyn Policy,
) -> Option<(QueueSeq, Dispatch, ReleaseReason)> {
    let available = pool.replicas.available();
    if pool.queue.held_len() == 0 || available.is_empty() {
        return None;
    }
    let (credit, reason) = batch_credit(pool);
    if credit == 0 || has_waiting_for(pool, available) {
        return None;
    }
    let host_of_all = batch_host(pool, None, available, reason);
    let mut in_order = pool.queue.held_in_order().take(HELD_LOOKED_AT_MAX);
    in_order.find_map(|(seq, queued)| {
        let pinned = queued.pinned.as_deref();
        let own = pinned.map(|_| batch_host(pool, pinned, available, reason));
        match route(
            pool,
            policy,
            queued,
            true,
            own.as_ref().unwrap_or(&host_of_all),
        ) {
            RoutingDecision::Dispatch(dispatch) => Some((seq, dispatch, reason)),
            _ => None,
        }
    })
}
