//! `cache_aware`: SGLang's cache-aware load balancer ("The Full Algorithm", with its library's thresholds).
//!
//! Two modes. While load is out of balance, nothing but load counts: the least outstanding. Otherwise the best match,
//! if it is more than half of the prompt, and else the replica with the least cached text, which has most room.
//!
//! Load is compared among those that may be chosen. SGLang looks at all healthy workers; under selective pushing
//! the overloaded ones are not available, so there is less to correct and the switch is rarer.
//!
//! Differs from SGLang where that leaves the choice open: of several with the same match, or equally little
//! cached, the first in load order (SGLang: whoever its tree names first). Least cached is a poor measure where
//! caches are full or a replica is new; it is kept because this is the published policy (see `prefix_tree`).

use super::{Policy, Selection, View, least_loaded, load_key, match_less_load, next_holder};
use crate::index::PrefixMatch;
use crate::replica_index::ReplicaIndex;
use crate::{Reason, Request};

/// The share of the prompt above which a match decides.
const MATCH_ABOVE: f64 = 0.5;
/// Out of balance when the most loaded has more than this many outstanding requests more than the least loaded,
const IMBALANCE_REQUESTS: u32 = 32;
/// and more than this many times as many.
const IMBALANCE_FACTOR: f64 = 1.1;

/// The best match while load is in balance.
#[derive(Debug)]
pub(super) struct CacheAware;

impl Policy for CacheAware {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        if is_out_of_balance(view) {
            return Some(Selection::Dispatch {
                slot: least_loaded(view, &[])?,
                reason: Reason::LeastLoaded,
                matched: None,
            });
        }
        let matched = view
            .index
            .deepest(request.fingerprint.blocks(), view.candidates);
        if request.fingerprint.share_at(matched.depth) > MATCH_ABOVE
            && let Some(slot) = view
                .index
                .targets(&matched, view.candidates)
                .min_by_key(|slot| load_key(view, *slot))
        {
            return Some(Selection::Dispatch {
                slot,
                reason: Reason::Prefix,
                matched: Some(matched),
            });
        }
        Some(Selection::Dispatch {
            slot: least_cached(view)?,
            reason: Reason::Spread,
            matched: None,
        })
    }

    /// Others with the same prefix first, then whoever has least to do: a fallback is about to be busier than planned.
    fn select_fallback(
        &self,
        _request: &Request,
        matched: Option<&PrefixMatch>,
        view: &View<'_>,
        failed: &[ReplicaIndex],
    ) -> Option<ReplicaIndex> {
        next_holder(matched, view, failed)
    }

    /// The share of the prompt that it has, less a little for its load: what decides among equal matches.
    fn score(&self, request: &Request, slot: ReplicaIndex, view: &View<'_>) -> f64 {
        match_less_load(request, slot, view)
    }
}

/// Whether the most loaded candidate has so much more to do than the least loaded one that caches do not count.
fn is_out_of_balance(view: &View<'_>) -> bool {
    let candidate = |slot: &ReplicaIndex| view.candidates.contains(*slot);
    let least = view.replicas.by_load().find(candidate);
    let most = view.replicas.by_load().rev().find(candidate);
    let Some((least, most)) = least.zip(most) else {
        return false;
    };
    let (least, most) = (load_key(view, least).0, load_key(view, most).0);
    most.saturating_sub(least) > IMBALANCE_REQUESTS
        && f64::from(most) > f64::from(least) * IMBALANCE_FACTOR
}

/// The candidate that holds the least text, as far as the index knows.
fn least_cached(view: &View<'_>) -> Option<ReplicaIndex> {
    view.candidates
        .iter()
        .min_by_key(|slot| (view.index.held_bytes(*slot), load_key(view, *slot)))
}
