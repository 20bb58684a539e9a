//! `prefix_tree`: the available replica with the longest match (SkyLB 3.2); below half a prompt, spread.
//!
//! A short match is worth little and following it makes hot spots: every conversation that starts with the same
//! system prompt would go where the first one went. So below half of the prompt the request goes to whoever has
//! least to do ("explores other underutilized replicas", SkyLB 5.1), which also makes the next copy of the prefix.
//!
//! Rejected: SGLang's fallback to the replica with the least cached text, which sends all to a new replica at once.

use super::{Policy, Selection, View, least_loaded, load_key, match_less_load, next_holder};
use crate::index::PrefixMatch;
use crate::replica_index::ReplicaIndex;
use crate::{Reason, Request};

/// The share of the prompt from which a match decides.
const MATCH_MIN: f64 = 0.5;

/// The longest match.
#[derive(Debug)]
pub(super) struct PrefixTree;

impl Policy for PrefixTree {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let matched = view
            .index
            .deepest(request.fingerprint.blocks(), view.candidates);
        if request.fingerprint.share_at(matched.depth) >= MATCH_MIN
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
            slot: least_loaded(view, &[])?,
            reason: Reason::Spread,
            matched: None,
        })
    }

    /// Others with the same prefix first.
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
