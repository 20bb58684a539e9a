//! `least_outstanding`: the fewest outstanding requests. A baseline: it balances and knows no cache.

use super::{Policy, Selection, View, least_loaded, load_score};
use crate::replica_index::ReplicaIndex;
use crate::{Reason, Request};

/// The fewest outstanding requests.
#[derive(Debug)]
pub(super) struct LeastOutstanding;

impl Policy for LeastOutstanding {
    fn select_replica(&self, _request: &Request, view: &View<'_>) -> Option<Selection> {
        Some(Selection::Dispatch {
            slot: least_loaded(view, &[])?,
            reason: Reason::LeastLoaded,
            matched: None,
        })
    }

    fn score(&self, _request: &Request, slot: ReplicaIndex, view: &View<'_>) -> f64 {
        load_score(view, slot)
    }
}
