//! `prefix_tree`: the available replica with the longest match (SkyLB 3.2), if that is at least half of the prompt.
//!
//! Below half of the prompt the request goes to the least loaded replica ("explores other underutilized replicas",
//! SkyLB 5.1), which also makes the next copy of the prefix. Following a short match, such as a system prompt, makes hot spots.

use crate::match_less_load;
use isotherm_router::{Policy, Reason, ReplicaIndex, Request, Selection, View};

/// The share of the prompt from which a match decides.
const MATCH_MIN: f64 = 0.5;

/// SkyLB's longest match.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrefixTree;

impl Policy for PrefixTree {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let matched = view.longest_match(request, view.candidates());
        if request.fingerprint.share_at(matched.depth) >= MATCH_MIN
            && let Some(replica) = view.least_loaded_holder(&matched)
        {
            return Some(Selection::to(replica, Reason::Prefix, Some(matched)));
        }
        let replica = view.least_loaded(&[])?;
        Some(Selection::to(replica, Reason::Spread, None))
    }

    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        match_less_load(request, replica, view)
    }
}
