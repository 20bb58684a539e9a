//! `preble`: exploit a match of more than half of the prompt, else explore the cheapest (Preble's E2, as DualMap
//! appendix B describes it).
//!
//! With more cached than missing, the request goes to the least loaded holder of the longest match. Otherwise the policy
//! selects the least sum, in seconds, of the prompts that wait on a replica and this prompt's uncached part. As in DualMap's
//! description, load over the last minutes, the cost of evicted prefixes, and moves of hot prefixes are left out.

use super::{
    Policy, PolicyRules, Selection, View, cheapest, least_loaded_holder, longest_match,
    match_less_load, match_on, uncached_tokens,
};
use crate::index::PrefixMatch;
use crate::replica_index::ReplicaIndex;
use crate::{Reason, Request};

/// The share of the prompt above which a match decides.
const MATCH_ABOVE: f64 = 0.5;

#[derive(Debug)]
pub(super) struct Preble;

impl Policy for Preble {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let matched = longest_match(request, view);
        if is_most(request, &matched)
            && let Some(replica) = least_loaded_holder(&matched, view)
        {
            return Some(Selection::to(replica, Reason::Prefix, Some(matched)));
        }
        let cost = |replica, uncached| work_s(view, replica, uncached);
        let (replica, matched) = cheapest(request, view, cost)?;
        Some(Selection::to(replica, Reason::Spread, Some(matched)))
    }

    /// The match less a little for the load, while a match decides; else minus the seconds of work.
    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        if is_most(request, &longest_match(request, view)) {
            return match_less_load(request, replica, view);
        }
        let uncached = uncached_tokens(request, match_on(request, replica, view).depth);
        -work_s(view, replica, uncached)
    }

    fn rules(&self) -> PolicyRules {
        PolicyRules {
            fallback_share_min: MATCH_ABOVE,
            ..PolicyRules::default()
        }
    }
}

fn is_most(request: &Request, matched: &PrefixMatch) -> bool {
    request.fingerprint.share_at(matched.depth) > MATCH_ABOVE
}

/// Time that a replica would compute prompts with this one added, in seconds.
fn work_s(view: &View<'_>, replica: ReplicaIndex, tokens: f64) -> f64 {
    let waiting = view.replicas.pending_prefill_tokens(replica, view.now);
    view.replicas.prefill_s(replica, waiting + tokens)
}
