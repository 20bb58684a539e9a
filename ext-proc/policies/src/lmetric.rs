//! `lmetric`: the least product of new prefill tokens and requests in flight (LMetric, OSDI'26, arXiv 2603.15202).
//!
//! The product has no weight to tune. As in the scorer for llm-d (llm-d-router, pull request 2351), the tokens are the uncached ones
//! of the request, and the batch is the number of requests in flight and the request itself. Among equal products, as those of replicas
//! that hold the whole prompt, the least loaded replica wins; llm-d's picker chooses by chance.

use isotherm_router::{Policy, Reason, ReplicaIndex, Request, Selection, View};

/// LMetric's product.
#[derive(Clone, Copy, Debug, Default)]
pub struct LMetric;

impl Policy for LMetric {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let cost = |replica, uncached| product(replica, uncached, view);
        let (replica, matched) = view.cheapest(request, cost)?;
        Some(Selection::to(replica, Reason::Prefix, Some(matched)))
    }

    /// Minus the product.
    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        let matched = view.match_on(request, replica);
        -product(replica, request.uncached_tokens(matched.depth), view)
    }
}

fn product(replica: ReplicaIndex, uncached: f64, view: &View<'_>) -> f64 {
    uncached * (f64::from(view.rank(replica).requests()) + 1.0)
}
