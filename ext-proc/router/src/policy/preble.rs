//! `preble`: exploit a match of more than half of the prompt, else explore the cheapest (Preble's E2, as DualMap
//! appendix B describes it).
//!
//! With more cached than missing, computing the rest is cheap wherever the rest is cached, and moving away would
//! duplicate it: the best match, the least loaded of those that have it. Otherwise load and what this request would add to
//! it are weighed in one unit, the time that it takes to compute them: the smallest sum of prompts that are waiting to be
//! computed there and this prompt's uncached part.
//!
//! Differs from Preble's own scheduler where DualMap's description does: load is what is waiting now, not the work of
//! the last three minutes; the cost of what the request would evict is left out; hot prefixes are not moved from the
//! most to the least loaded after the fact. What was published as a baseline is what is compared. In seconds and not in
//! tokens, so that a replica of half the speed counts twice; among equals it is the same order.

use super::{
    Policy, Selection, View, cheapest, load_key, match_less_load, next_holder, uncached_tokens,
};
use crate::index::PrefixMatch;
use crate::replica_index::ReplicaIndex;
use crate::{Reason, Request};

/// The share of the prompt above which a match decides.
const MATCH_ABOVE: f64 = 0.5;

/// The best match if it is most of the prompt, else the least work.
#[derive(Debug)]
pub(super) struct Preble;

impl Policy for Preble {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let matched = best(request, view);
        if is_most(request, &matched)
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
        let (slot, matched) =
            cheapest(request, view, |slot, uncached| work_s(view, slot, uncached))?;
        Some(Selection::Dispatch {
            slot,
            reason: Reason::Spread,
            matched: Some(matched),
        })
    }

    /// Others with the same prefix first, when it is most of the prompt; else whoever has least to do.
    fn select_fallback(
        &self,
        request: &Request,
        matched: Option<&PrefixMatch>,
        view: &View<'_>,
        failed: &[ReplicaIndex],
    ) -> Option<ReplicaIndex> {
        next_holder(
            matched.filter(|matched| is_most(request, matched)),
            view,
            failed,
        )
    }

    /// While a match decides, the share of the prompt that it has, less a little for its load. Else the seconds of work
    /// that it would have, below zero.
    fn score(&self, request: &Request, slot: ReplicaIndex, view: &View<'_>) -> f64 {
        if is_most(request, &best(request, view)) {
            return match_less_load(request, slot, view);
        }
        let matched = view.index.deepest_of(request.fingerprint.blocks(), slot);
        -work_s(view, slot, uncached_tokens(request, matched.depth))
    }
}

fn best(request: &Request, view: &View<'_>) -> PrefixMatch {
    let blocks = request.fingerprint.blocks();
    view.index.deepest(blocks, view.candidates)
}

fn is_most(request: &Request, matched: &PrefixMatch) -> bool {
    request.fingerprint.share_at(matched.depth) > MATCH_ABOVE
}

/// How long a replica would compute prompts if it had this one too, in seconds.
fn work_s(view: &View<'_>, slot: ReplicaIndex, tokens: f64) -> f64 {
    let waiting = view.replicas.pending_prefill_tokens(slot, view.now);
    view.replicas.prefill_s(slot, waiting + tokens)
}
