//! `least_outstanding`: the fewest outstanding requests, a baseline that balances load and knows no caches.

use crate::load_score;
use isotherm_router::{Policy, Reason, ReplicaIndex, Request, Selection, View};

/// The fewest outstanding requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastOutstanding;

impl Policy for LeastOutstanding {
    fn select_replica(&self, _request: &Request, view: &View<'_>) -> Option<Selection> {
        let replica = view.least_loaded(&[])?;
        Some(Selection::to(replica, Reason::LeastLoaded, None))
    }

    fn score(&self, _request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        load_score(view, replica)
    }
}
