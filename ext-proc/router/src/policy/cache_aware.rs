//! `cache_aware`: SGLang's cache-aware load balancer ("The Full Algorithm", with its library's thresholds).
//!
//! While load is out of balance, the policy selects the replica with the fewest outstanding requests. Otherwise it selects
//! the longest match, if that is more than half of the prompt, and else the replica with the least cached text. Unlike SGLang,
//! the policy compares load among the candidates, and sends equal matches to the least loaded replica.

use super::{
    Policy, Selection, View, least_loaded, least_loaded_holder, longest_match, match_less_load,
    rank,
};
use crate::replica_index::ReplicaIndex;
use crate::{Reason, Request};

/// The share of the prompt above which a match decides.
const MATCH_ABOVE: f64 = 0.5;
/// Out of balance when the most loaded has more than this many outstanding requests more than the least loaded,
const IMBALANCE_REQUESTS: u32 = 32;
/// and more than this many times as many.
const IMBALANCE_FACTOR: f64 = 1.1;

#[derive(Debug)]
pub(super) struct CacheAware;

impl Policy for CacheAware {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        if is_out_of_balance(view) {
            let replica = least_loaded(view, &[])?;
            return Some(Selection::to(replica, Reason::LeastLoaded, None));
        }
        let matched = longest_match(request, view);
        if request.fingerprint.share_at(matched.depth) > MATCH_ABOVE
            && let Some(replica) = least_loaded_holder(&matched, view)
        {
            return Some(Selection::to(replica, Reason::Prefix, Some(matched)));
        }
        Some(Selection::to(least_cached(view)?, Reason::Spread, None))
    }

    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        match_less_load(request, replica, view)
    }
}

/// Whether the most loaded candidate has so much more to do than the least loaded one that caches do not count.
fn is_out_of_balance(view: &View<'_>) -> bool {
    let is_candidate = |replica: &ReplicaIndex| view.candidates.contains(*replica);
    let least = view.replicas.by_load().find(is_candidate);
    let most = view.replicas.by_load().rev().find(is_candidate);
    let Some((least, most)) = least.zip(most) else {
        return false;
    };
    let (least, most) = (
        rank(view, least).outstanding(),
        rank(view, most).outstanding(),
    );
    most.saturating_sub(least) > IMBALANCE_REQUESTS
        && f64::from(most) > f64::from(least) * IMBALANCE_FACTOR
}

/// The candidate that holds the least text, as far as the index knows.
fn least_cached(view: &View<'_>) -> Option<ReplicaIndex> {
    view.candidates
        .iter()
        .min_by_key(|replica| (view.index.held_bytes(*replica), rank(view, *replica)))
}
