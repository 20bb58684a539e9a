//! Decisions between regions: whether a request leaves, and for which peer (`docs/design/forwarding.md`).
//!
//! SkyLB forwards a request exactly when no local replica is free. A request that starts earlier here stays, by the measured prefill
//! speed of this pool, which stands for the peer's. A request that costs less at a peer leaves, although a replica is free. Neither
//! holds for a policy that ignores prefixes, nor under [`ForwardingRule::Published`].
//!
//! Under [`RegionChoice::Utilisation`] (SageServe 6.1), a request goes to the first region whose effective memory utilisation is below a
//! threshold: its own region, and then the available peers by round trip. If there is none, the request goes to the least utilised
//! region. A request whose prefix this region caches stays while the policy prices that lower.

use super::routing::{AvailableTargets, RoutingDecision};
use crate::constant::constants;
use crate::forwarding::{ChosenRegion, ForwardTarget};
use crate::policy::{Policy, RegionCosts};
use crate::pool_state::PoolState;
use crate::queue::QueuedRequest;
use crate::replica_index::ReplicaSet;
use crate::{ForwardingRule, PeerId, RegionChoice, Request};

constants! {
    /// Advantage from which a peer counts as cheaper, as a share of the learned service time, where one peer is available. The
    /// peer's report is a heartbeat old, and a session that leaves stays away. The advantage grows with the square root of the number of
    /// available peers: the more reports, the further the lowest cost among them lies below the true one.
    FORWARDING_MARGIN: f64 = 0.03;
    /// Smallest share of the prompt in this region's caches with which a request may stay for them.
    /// Source: SkyLB, which follows a prefix from half of the prompt on.
    WARM_SHARE_MIN: f64 = 0.5;
}

/// Selects a peer for a request behind `ahead` others that no local replica can start.
pub(super) fn peer_of_waiting(
    pool: &PoolState,
    policy: &dyn Policy,
    queued: &QueuedRequest,
    ahead: usize,
    at: AvailableTargets<'_>,
) -> Option<ForwardTarget> {
    if !at.replicas.is_empty() {
        return None;
    }
    let (target, stays) = match choose_region(pool, queued, at.peers) {
        Some(ChosenRegion::Peer(target)) => {
            let routing = RoutingDecision::Wait(queued.preferred);
            let stays = is_cheaper_here(pool, policy, queued, &routing, &target, at);
            (target, stays)
        }
        Some(ChosenRegion::Own) => return None,
        None => {
            let target = select_peer(pool, policy, &queued.request, at.peers)?;
            let stays =
                forwards_by_cost(pool, policy) && starts_earlier(pool, &target, queued, ahead);
            (target, stays)
        }
    };
    (!stays).then_some(target)
}

/// Selects a peer for a request that a local replica could start, or that waits for a busy one.
pub(super) fn peer_of_startable(
    pool: &PoolState,
    policy: &dyn Policy,
    queued: &QueuedRequest,
    routing: &RoutingDecision,
    at: AvailableTargets<'_>,
) -> Option<ForwardTarget> {
    if at.peers.is_empty() {
        return None;
    }
    match choose_region(pool, queued, at.peers) {
        Some(ChosenRegion::Peer(target)) => {
            let stays = is_cheaper_here(pool, policy, queued, routing, &target, at);
            (!stays).then_some(target)
        }
        Some(ChosenRegion::Own) => None,
        None => cheaper_peer(pool, policy, queued, routing, at),
    }
}

/// Selects an available peer that a request has not tried.
pub(super) fn select_peer(
    pool: &PoolState,
    policy: &dyn Policy,
    request: &Request,
    peers: &ReplicaSet,
) -> Option<ForwardTarget> {
    let ignores_prefixes = policy.rules().ignores_prefixes;
    pool.peers
        .select(request, request.tried()?, ignores_prefixes, peers)
}

/// Whether the exceptions to SkyLB's rule apply.
fn forwards_by_cost(pool: &PoolState, policy: &dyn Policy) -> bool {
    pool.config.region.forwarding == ForwardingRule::Cost && !policy.rules().ignores_prefixes
}

/// The region of a request by utilisation; `None` where another rule decides, or the engines here tell nothing of their memory.
fn choose_region(
    pool: &PoolState,
    queued: &QueuedRequest,
    peers: &ReplicaSet,
) -> Option<ChosenRegion> {
    if pool.config.region.choice != RegionChoice::Utilisation {
        return None;
    }
    let request = &queued.request;
    let tried = request.tried()?;
    let own = pool.replicas.memory_use_of_pool()?.share;
    let has_own = pool.replicas.any_healthy();
    if has_own && own < RegionChoice::UTILISATION_MAX {
        return Some(ChosenRegion::Own);
    }
    let own = has_own.then_some(own);
    let target = pool.peers.by_utilisation(request, tried, peers, own);
    Some(target.map_or(ChosenRegion::Own, ChosenRegion::Peer))
}

/// Selects a peer where a request costs less than on the replica that the policy selected, or lets it wait for.
///
/// A policy without such costs keeps to SkyLB's rule. Without a free replica, the queue decides; without a measured speed, the local
/// replicas do.
fn cheaper_peer(
    pool: &PoolState,
    policy: &dyn Policy,
    queued: &QueuedRequest,
    routing: &RoutingDecision,
    at: AvailableTargets<'_>,
) -> Option<ForwardTarget> {
    let is_measured = pool.replicas.prefill_of_pool_s(0.0).is_some();
    if at.replicas.is_empty() || !is_measured || !forwards_by_cost(pool, policy) {
        return None;
    }
    let costs = policy.region_costs()?;
    let here_s = cost_here(pool, costs, queued, routing)?;
    let tried = queued.request.tried()?;
    let (there_s, target) = cheapest(pool, costs, queued, tried, at.peers)?;
    let reports = u32::try_from(at.peers.len()).unwrap_or(u32::MAX);
    let margin_s = FORWARDING_MARGIN.get() * f64::from(reports).sqrt() * pool.service_s?;
    (there_s + margin_s < here_s).then_some(target)
}

/// Whether this region caches more of a prompt than the peer, and the request costs less here.
fn is_cheaper_here(
    pool: &PoolState,
    policy: &dyn Policy,
    queued: &QueuedRequest,
    routing: &RoutingDecision,
    target: &ForwardTarget,
    at: AvailableTargets<'_>,
) -> bool {
    let fingerprint = &queued.request.fingerprint;
    let here = pool
        .caches
        .index
        .deepest(fingerprint.blocks(), pool.replicas.staying());
    let is_warm = fingerprint.share_at(here.depth) >= WARM_SHARE_MIN.get()
        && here.depth > target.matched.depth;
    if !is_warm || !forwards_by_cost(pool, policy) {
        return false;
    }
    if at.replicas.is_empty() {
        return starts_earlier(pool, target, queued, pool.queue.waiting_len());
    }
    let is_cheaper = policy.region_costs().and_then(|costs| {
        let here_s = cost_here(pool, costs, queued, routing)?;
        let mut only = ReplicaSet::default();
        only.set(target.slot, true);
        let (there_s, _) = cheapest(pool, costs, queued, &[], &only)?;
        Some(here_s <= there_s)
    });
    is_cheaper.unwrap_or(true)
}

/// Cost of a request on the local replica that the policy selected, or lets it wait for.
fn cost_here(
    pool: &PoolState,
    costs: &dyn RegionCosts,
    queued: &QueuedRequest,
    routing: &RoutingDecision,
) -> Option<f64> {
    let (replica, wait_s) = match routing {
        RoutingDecision::Dispatch(dispatch) => (dispatch.replica, 0.0),
        RoutingDecision::Wait(Some(preferred)) => (*preferred, pool.turn_s(*preferred)),
        RoutingDecision::Wait(None) | RoutingDecision::Forward(_) | RoutingDecision::Reject(_) => {
            return None;
        }
    };
    let view = pool.view_of(queued, pool.replicas.available());
    costs.cost_here(&queued.request, replica, wait_s, &view)
}

/// The untried peer of the least cost, and that cost.
fn cheapest(
    pool: &PoolState,
    costs: &dyn RegionCosts,
    queued: &QueuedRequest,
    tried: &[PeerId],
    peers: &ReplicaSet,
) -> Option<(f64, ForwardTarget)> {
    let view = pool.view_of(queued, pool.replicas.available());
    let price = |cost: &_, tokens, wait_s| costs.cost_there(cost, tokens, wait_s, &view);
    pool.peers.cheapest(&queued.request, tried, peers, price)
}

/// Whether a request behind `ahead` others has its first token earlier here than at the peer.
fn starts_earlier(
    pool: &PoolState,
    target: &ForwardTarget,
    queued: &QueuedRequest,
    ahead: usize,
) -> bool {
    let (request, replicas) = (&queued.request, &pool.replicas);
    let blocks = request.fingerprint.blocks();
    let local = pool.caches.index.deepest(blocks, replicas.staying());
    let prefill_s = |depth| replicas.prefill_of_pool_s(request.uncached_tokens(depth));
    let is_earlier = || {
        let waited = pool.now.since(queued.arrived);
        let wait_s = wait_s(pool, ahead)?.max(waited.as_secs_f64());
        let local_s = wait_s + prefill_s(local.depth)?;
        let peer_s = target.estimated_ttft.as_secs_f64() + prefill_s(target.matched.depth)?;
        Some(local_s < peer_s)
    };
    is_earlier().unwrap_or(false)
}

/// Time until a request behind `ahead` others is dispatched, by Little's law, in seconds; `None` before any request has ended.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn wait_s(pool: &PoolState, ahead: usize) -> Option<f64> {
    let in_flight = pool.in_flight.len();
    (in_flight > 0).then_some((ahead + 1) as f64 * pool.service_s? / in_flight as f64)
}
