//! `min_ttft`: the lowest estimated time to first token (Mooncake's scheduling, as DualMap 3.2 and appendix B describe it):
//! the replica's queue, and computing the part of the prompt that it does not hold.
//!
//! The policy is greedy: it leaves a warm cache for any short advantage and computes prefixes again. Mooncake's transfer of
//! caches between replicas is left out. DualMap prints the cost as max(pending - recompute), which prefers long queues; its
//! text says min(pending + recompute), which this module computes in seconds.

use isotherm_router::{Policy, Reason, ReplicaIndex, Request, Selection, View};

/// Mooncake's lowest estimated time to first token.
#[derive(Clone, Copy, Debug, Default)]
pub struct MinTtft;

impl Policy for MinTtft {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let ttft_s = |replica, uncached| view.ttft_s(replica, uncached);
        let (replica, matched) = view.cheapest(request, ttft_s)?;
        Some(Selection::to(replica, Reason::Soonest, Some(matched)))
    }

    /// Minus the estimated seconds.
    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        let uncached = request.uncached_tokens(view.match_on(request, replica).depth);
        -view.ttft_s(replica, uncached)
    }
}
