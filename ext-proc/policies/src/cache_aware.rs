//! `cache_aware`: SGLang's cache-aware load balancer ("The Full Algorithm").
//!
//! While load is out of balance, the policy selects the available replica with the fewest outstanding requests. Otherwise it
//! selects the longest match, if that is more than a share of the prompt, and else the replica with the least cached text.
//! SGLang's gateway has selected the one with the fewest outstanding requests instead since December 2025. The rules are
//! [`isotherm_router::CacheAwareRules`]. As in SGLang, load is compared among all replicas that may serve the request; unlike there, equal
//! matches go to the least loaded replica.

use crate::match_less_load;
use isotherm_router::{MissRule, Policy, Reason, ReplicaIndex, Request, Selection, View};
use itertools::Itertools;

/// SGLang's balancer.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheAware;

impl Policy for CacheAware {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        if is_out_of_balance(request, view) {
            let replica = view.least_loaded(&[])?;
            return Some(Selection::to(replica, Reason::LeastLoaded, None));
        }
        let matched = view.longest_match(request, view.candidates());
        let is_long =
            request.fingerprint.share_at(matched.depth) > view.config().cache_aware.cache_threshold;
        if is_long && let Some(replica) = view.least_loaded_holder(&matched) {
            return Some(Selection::to(replica, Reason::Prefix, Some(matched)));
        }
        let replica = match view.config().cache_aware.on_miss {
            MissRule::LeastCached => least_cached(view),
            MissRule::LeastOutstanding => view.least_loaded(&[]),
        };
        Some(Selection::to(replica?, Reason::Spread, None))
    }

    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        match_less_load(request, replica, view)
    }
}

/// Whether the most loaded replica has so much more to do than the least loaded one that caches do not count. Replicas that
/// are full now count as well: under selective pushing, no candidate has many requests.
fn is_out_of_balance(request: &Request, view: &View<'_>) -> bool {
    let rules = &view.config().cache_aware;
    let replicas = view.eligible(request, view.trusted());
    let outstanding = replicas.iter().map(|replica| view.rank(replica).requests());
    let Some((least, most)) = outstanding.minmax().into_option() else {
        return false;
    };
    most.saturating_sub(least) > rules.balance_abs_threshold
        && f64::from(most) > f64::from(least) * rules.balance_rel_threshold
}

/// The candidate that holds the least text, as far as the index knows.
fn least_cached(view: &View<'_>) -> Option<ReplicaIndex> {
    view.candidates()
        .iter()
        .min_by_key(|replica| (view.held_bytes(*replica), view.rank(*replica)))
}
