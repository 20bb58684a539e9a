//! `lmetric`: the least product of new prefill tokens and requests in flight (LMetric, OSDI'26, arXiv 2603.15202); for experiments.
//!
//! The product has no weight to tune. As in the scorer for llm-d (llm-d-router, pull request 2351), the tokens are the uncached ones
//! of the request, and the batch is the number of requests in flight and the request itself. Among equal products, as those of replicas
//! that hold the whole prompt, the least loaded replica wins; llm-d's picker chooses by chance.

use super::{Policy, Selection, View, cheapest, match_on, rank, uncached_tokens};
use crate::replica_index::ReplicaIndex;
use crate::{Reason, Request};

#[derive(Debug)]
pub(super) struct LMetric;

impl Policy for LMetric {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let cost = |replica, uncached| product(replica, uncached, view);
        let (replica, matched) = cheapest(request, view, cost)?;
        Some(Selection::to(replica, Reason::Prefix, Some(matched)))
    }

    /// Minus the product.
    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        let matched = match_on(request, replica, view);
        -product(replica, uncached_tokens(request, matched.depth), view)
    }
}

fn product(replica: ReplicaIndex, uncached: f64, view: &View<'_>) -> f64 {
    uncached * (f64::from(rank(view, replica).outstanding()) + 1.0)
}
