//! `prefix_tree`: the available replica with the longest match (SkyLB 3.2), if that is at least half of the prompt.
//!
//! Below half of the prompt the request goes to the least loaded replica ("explores other underutilized replicas",
//! SkyLB 5.1), which also makes the next copy of the prefix. Following a short match, such as a system prompt, makes hot spots.

use super::{
    Policy, Selection, View, least_loaded, least_loaded_holder, longest_match, match_less_load,
};
use crate::replica_index::ReplicaIndex;
use crate::{Reason, Request};

/// The share of the prompt from which a match decides.
const MATCH_MIN: f64 = 0.5;

#[derive(Debug)]
pub(super) struct PrefixTree;

impl Policy for PrefixTree {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let matched = longest_match(request, view);
        if request.fingerprint.share_at(matched.depth) >= MATCH_MIN
            && let Some(replica) = least_loaded_holder(&matched, view)
        {
            return Some(Selection::to(replica, Reason::Prefix, Some(matched)));
        }
        let replica = least_loaded(view, &[])?;
        Some(Selection::to(replica, Reason::Spread, None))
    }

    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        match_less_load(request, replica, view)
    }
}
