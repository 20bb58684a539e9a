//! `least_outstanding`: the fewest outstanding requests, a baseline that balances load and knows no caches.

use super::{Policy, Selection, View, least_loaded, load_score};
use crate::replica_index::ReplicaIndex;
use crate::{Reason, Request};

#[derive(Debug)]
pub(super) struct LeastOutstanding;

impl Policy for LeastOutstanding {
    fn select_replica(&self, _request: &Request, view: &View<'_>) -> Option<Selection> {
        let replica = least_loaded(view, &[])?;
        Some(Selection::to(replica, Reason::LeastLoaded, None))
    }

    fn score(&self, _request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        load_score(view, replica)
    }
}
