//! `least_outstanding`: the fewest outstanding requests. A baseline: it balances and knows no cache.

use super::{Placement, Policy, View, least_loaded, load_score};
use crate::slots::Slot;
use crate::{Reason, Request};

/// The fewest outstanding requests.
#[derive(Debug)]
pub(super) struct LeastOutstanding;

impl Policy for LeastOutstanding {
    fn place(&self, _request: &Request, view: &View<'_>) -> Option<Placement> {
        Some(Placement::Now {
            slot: least_loaded(view, &[])?,
            reason: Reason::LeastLoaded,
            found: None,
        })
    }

    fn score(&self, _request: &Request, slot: Slot, view: &View<'_>) -> f64 {
        load_score(view, slot)
    }
}
