//! `min_ttft`: the lowest estimated time to the first token (Mooncake's scheduling, as DualMap 3.2 and appendix B describe
//! it): the queue there, and computing what is not cached there.
//!
//! Greedy for each request: under light load the cache decides, under heavy load the queue does. Its weakness, as DualMap
//! shows, is that it gives up a cache for any moment's advantage, and computes prefixes again which it then
//! has everywhere.
//!
//! Mooncake's transfer of caches between replicas is left out: engines that are pushed to from outside have none. DualMap
//! prints the cost as max(pending - recompute), which prefers long queues; what its text says is min(pending +
//! recompute), and that is what this does, in the seconds that each replica takes for them.

use super::{Policy, Selection, View, cheapest, next_holder, uncached_tokens};
use crate::index::PrefixMatch;
use crate::replica_index::ReplicaIndex;
use crate::{Reason, Request};

/// From this share of the prompt on, a fallback had better have it too.
const MATCH_MIN: f64 = 0.5;

/// The lowest estimated time to the first token.
#[derive(Debug)]
pub(super) struct MinTtft;

impl Policy for MinTtft {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let ttft_s = |slot, uncached| view.replicas.ttft_s(slot, uncached, view.now);
        let (slot, matched) = cheapest(request, view, ttft_s)?;
        Some(Selection::Dispatch {
            slot,
            reason: Reason::Soonest,
            matched: Some(matched),
        })
    }

    /// Others with the same prefix first, then whoever has least to do: estimating everybody's time once more for a
    /// replica that is rarely needed is not worth it.
    fn select_fallback(
        &self,
        request: &Request,
        matched: Option<&PrefixMatch>,
        view: &View<'_>,
        failed: &[ReplicaIndex],
    ) -> Option<ReplicaIndex> {
        let share = |matched: &PrefixMatch| request.fingerprint.share_at(matched.depth);
        let matched = matched.filter(|matched| share(matched) >= MATCH_MIN);
        next_holder(matched, view, failed)
    }

    /// The estimated seconds, below zero.
    fn score(&self, request: &Request, slot: ReplicaIndex, view: &View<'_>) -> f64 {
        let matched = view.index.deepest_of(request.fingerprint.blocks(), slot);
        -view
            .replicas
            .ttft_s(slot, uncached_tokens(request, matched.depth), view.now)
    }
}
