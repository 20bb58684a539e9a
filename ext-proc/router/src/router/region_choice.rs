//! The choice of a region by effective memory utilisation (SageServe 6.1).
//!
//! A request goes to the first region whose utilisation is below a threshold: its own region, and then the available peers by round
//! trip. If there is none, the request goes to the least utilised region. A peer's utilisation includes the requests sent since its
//! report. A request whose prefix this region caches stays while the policy prices that lower.

use super::Router;
use super::decide::{AvailableTargets, RoutingDecision};
use crate::RegionChoice;
use crate::constant::constants;
use crate::forwarding::{ChosenRegion, ForwardTarget};
use crate::queue::QueuedRequest;
use crate::replica_index::ReplicaSet;

constants! {
    /// Smallest share of the prompt in this region's caches with which a request may stay for them.
    /// Source: SkyLB, which follows a prefix from half of the prompt on.
    WARM_SHARE_MIN: f64 = 0.5;
}

impl Router {
    /// The region of a request by utilisation; `None` where another rule decides, or the engines here tell nothing of their memory.
    pub(super) fn choose_region(
        &self,
        queued: &QueuedRequest,
        peers: &ReplicaSet,
    ) -> Option<ChosenRegion> {
        let pool = &self.pool;
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
        let target = pool
            .peers
            .by_utilisation(request, tried, peers, has_own.then_some(own));
        Some(target.map_or(ChosenRegion::Own, ChosenRegion::Peer))
    }

    /// Whether this region caches more of a prompt than the peer, and the request costs less here.
    pub(super) fn is_cheaper_here(
        &self,
        queued: &QueuedRequest,
        routing: &RoutingDecision,
        target: &ForwardTarget,
        at: AvailableTargets<'_>,
    ) -> bool {
        let (pool, request) = (&self.pool, &queued.request);
        let blocks = request.fingerprint.blocks();
        let here = pool.index.deepest(blocks, pool.replicas.staying());
        let is_warm = request.fingerprint.share_at(here.depth) >= WARM_SHARE_MIN.get()
            && here.depth > target.matched.depth;
        if !is_warm || !self.forwards_by_cost() {
            return false;
        }
        if at.replicas.is_empty() {
            let waited = pool.now.since(queued.arrived);
            let ahead = pool.queue.waiting_len();
            return pool.is_waiting_cheaper(target, request, waited, ahead);
        }
        let costs = self.policy.region_costs();
        let is_cheaper = costs.and_then(|costs| {
            let here_s = self.cost_here(costs, queued, routing)?;
            let view = pool.view_of(queued, pool.replicas.available());
            let price = |cost: &_, tokens, wait_s| costs.cost_there(cost, tokens, wait_s, &view);
            let mut only = ReplicaSet::default();
            only.set(target.slot, true);
            let (there_s, _) = pool.peers.cheapest(request, &[], &only, price)?;
            Some(here_s <= there_s)
        });
        is_cheaper.unwrap_or(true)
    }
}
