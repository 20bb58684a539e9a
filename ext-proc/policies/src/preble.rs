//! `preble`: exploit a match of more than half of the prompt, else explore the cheapest (Preble's E2, as DualMap
//! appendix B describes it).
//!
//! With more cached than missing, the request goes to the least loaded holder of the longest match. Otherwise the policy
//! selects the least sum, in seconds, of the prompts that wait on a replica and this prompt's uncached part. As in DualMap's
//! description, load over the last minutes, the cost of evicted prefixes, and moves of hot prefixes are left out.

use crate::match_less_load;
use isotherm_router::{Policy, PrefixMatch, Reason, ReplicaIndex, Request, Selection, View};

/// The share of the prompt above which a match decides.
const MATCH_ABOVE: f64 = 0.5;

/// Preble's E2: exploit, else explore.
#[derive(Clone, Copy, Debug, Default)]
pub struct Preble;

impl Policy for Preble {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let matched = view.longest_match(request, view.candidates());
        if is_most(request, &matched)
            && let Some(replica) = view.least_loaded_holder(&matched)
        {
            return Some(Selection::to(replica, Reason::Prefix, Some(matched)));
        }
        let cost = |replica, uncached| work_s(view, replica, uncached);
        let (replica, matched) = view.cheapest(request, cost)?;
        Some(Selection::to(replica, Reason::Spread, Some(matched)))
    }

    /// The match less a little for the load, while a match decides; else minus the seconds of work.
    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        if is_most(request, &view.longest_match(request, view.candidates())) {
            return match_less_load(request, replica, view);
        }
        let uncached = request.uncached_tokens(view.match_on(request, replica).depth);
        -work_s(view, replica, uncached)
    }
}

fn is_most(request: &Request, matched: &PrefixMatch) -> bool {
    request.fingerprint.share_at(matched.depth) > MATCH_ABOVE
}

/// Time that a replica would compute prompts with this one added, in seconds.
fn work_s(view: &View<'_>, replica: ReplicaIndex, tokens: f64) -> f64 {
    let waiting = view.backlog_tokens(replica);
    view.prefill_s(replica, waiting + tokens)
}
