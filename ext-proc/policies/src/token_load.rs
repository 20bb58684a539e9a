//! `token_load`: llm-d's default since August 2026, "sticky until saturated".
//!
//! - prefix cache affinity filter: replicas that hold at least 0.80 of the prompt are sticky, and the others are left out
//! - gate: all replicas stay if the best sticky replica would begin so much later than the best other one. The time to first token
//!   is the tokens in flight over the peak prefill throughput, which users calibrate
//! - token load scorer: of those left, the least sum of the uncached tokens in flight and the request's own
//!
//! Tokens in flight are the uncached prompt tokens of requests whose response has not begun. Sources: llm-d-router, the plug-ins
//! `prefix-cache-affinity-filter`, `inflight-load-producer` and `token-load-scorer` with their defaults, and llm-d's guide
//! `optimized-baseline`, whose budget of 286,720 tokens is 18 s at the default throughput. Here, the throughput is the slope of the
//! pool's prefill line, which the router learns: the best calibration. Ties go to the least loaded replica instead of chance.

use super::in_flight::CandidateSums;
use isotherm_router::{Policy, Reason, ReplicaIndex, Request, Selection, View};

/// Share of the prompt from which a replica is sticky.
const AFFINITY: f64 = 0.80;
/// Largest delay of the first token for a sticky replica, in seconds.
const PENALTY_MAX_S: f64 = 18.0;

/// llm-d's default, "sticky until saturated".
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenLoad;

impl Policy for TokenLoad {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let sums = CandidateSums::of_candidates(view);
        let token_s = view.prefill_token_s();
        let is_narrowed = is_narrowed(request, &sums, token_s, view);
        let cost = |replica, uncached| {
            if is_narrowed && !is_sticky(request, uncached) {
                return f64::INFINITY;
            }
            sums.get(replica).uncomputed.tokens + uncached
        };
        let (replica, matched) = view.cheapest(request, cost)?;
        Some(Selection::to(replica, Reason::Prefix, Some(matched)))
    }

    /// Minus the tokens, whether or not the replica is sticky.
    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        let uncached = request.uncached_tokens(view.match_on(request, replica).depth);
        let sums = CandidateSums::of_candidates(view);
        -(sums.get(replica).uncomputed.tokens + uncached)
    }
}

fn is_sticky(request: &Request, uncached: f64) -> bool {
    uncached <= (1.0 - AFFINITY) * f64::from(request.prompt_tokens)
}

/// Whether only sticky replicas are left.
fn is_narrowed(request: &Request, sums: &CandidateSums, token_s: f64, view: &View<'_>) -> bool {
    let (mut sticky, mut others) = (f64::INFINITY, f64::INFINITY);
    view.each_match(request, |replica, matched| {
        let ttft_s = sums.get(replica).uncomputed.tokens * token_s;
        let uncached = request.uncached_tokens(matched.depth);
        let least = if is_sticky(request, uncached) {
            &mut sticky
        } else {
            &mut others
        };
        *least = least.min(ttft_s);
    });
    sticky.is_finite() && (others.is_infinite() || sticky - others <= PENALTY_MAX_S)
}
