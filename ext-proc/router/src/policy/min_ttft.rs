//! `min_ttft`: the lowest estimated time to first token (Mooncake's scheduling, as DualMap 3.2 and appendix B describe it):
//! the replica's queue, and computing the part of the prompt that it does not hold.
//!
//! The policy is greedy: it leaves a warm cache for any short advantage and computes prefixes again. Mooncake's transfer of
//! caches between replicas is left out. DualMap prints the cost as max(pending - recompute), which prefers long queues; its
//! text says min(pending + recompute), which this module computes in seconds.

use super::{Policy, PolicyRules, Selection, View, cheapest, match_on, uncached_tokens};
use crate::replica_index::ReplicaIndex;
use crate::{Reason, Request};

/// The least share of the prompt for which a fallback is chosen by its cache.
const MATCH_MIN: f64 = 0.5;

#[derive(Debug)]
pub(super) struct MinTtft;

impl Policy for MinTtft {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let ttft_s = |replica, uncached| view.replicas.ttft_s(replica, uncached, view.now);
        let (replica, matched) = cheapest(request, view, ttft_s)?;
        Some(Selection::to(replica, Reason::Soonest, Some(matched)))
    }

    /// Minus the estimated seconds.
    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        let uncached = uncached_tokens(request, match_on(request, replica, view).depth);
        -view.replicas.ttft_s(replica, uncached, view.now)
    }

    fn rules(&self) -> PolicyRules {
        PolicyRules {
            fallback_share_min: MATCH_MIN,
            ..PolicyRules::default()
        }
    }
}
