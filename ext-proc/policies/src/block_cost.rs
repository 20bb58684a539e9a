//! `block_cost`: the linear cost of Dynamo's KV router.
//!
//! The least sum of prefill blocks and decode blocks wins, at temperature 0:
//!
//! - prefill: uncached blocks of the requests whose response has not begun, and of this request, with a full credit for its match
//! - decode: blocks of the prompts in flight; those of this request are the same for every replica
//!
//! Source: ai-dynamo/dynamo, `docs/components/router/router-concepts.md` and `router-configuration.md`, with the defaults: overlap credit 1,
//! prefill scale 1, no decay, no output blocks. Blocks are counted in tokens, which changes no order. Requests that share a prefix count it
//! once each, where Dynamo counts a shared block once. Unlike Dynamo, which reads the events of engines, the policy knows the match by this
//! project's index. Ties go to the least loaded replica.

use super::in_flight::CandidateSums;
use isotherm_router::{Policy, Reason, ReplicaIndex, Request, Selection, View};

/// Dynamo's linear cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockCost;

impl Policy for BlockCost {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let sums = CandidateSums::of_candidates(view);
        let cost = |replica, uncached| cost(replica, uncached, &sums);
        let (replica, matched) = view.cheapest(request, cost)?;
        Some(Selection::to(replica, Reason::Prefix, Some(matched)))
    }

    /// Minus the cost.
    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        let uncached = request.uncached_tokens(view.match_on(request, replica).depth);
        -cost(replica, uncached, &CandidateSums::of_candidates(view))
    }
}

/// Prefill and decode of a replica with a request of so many uncached tokens, in tokens.
fn cost(replica: ReplicaIndex, uncached: f64, sums: &CandidateSums) -> f64 {
    let sums = sums.get(replica);
    sums.uncomputed.tokens + uncached + sums.prompt_tokens
}
