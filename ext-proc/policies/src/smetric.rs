//! `smetric`: a session's cache while it meets the objective, else the least prefill work (SMetric).
//!
//! The work of a prompt of `l` tokens with `n` uncached ones is `c_lin n + c_att n (l - n / 2)`: the second term is attention. A replica's
//! queued work is that of its requests whose response has not begun, and of this request.
//!
//! - session gate: a request of a known session follows the longest match, if that is more than half of the expected one, and if the
//!   queued work meets the objective or no replica meets it
//! - otherwise the least product of queued work and requests in flight wins, as in a colocated deployment of the source
//!
//! Source: vllm-project/router, `src/policies/smetric.rs` of a branch. Constants have no published default: the share of one half is that
//! of its tests, attention is that of the presets in `simulator/engine` (about 1e-4 of a token's time for each token before it), and
//! the objective is the pool's. The rate is the slope of the pool's prefill line, which the router learns, instead of a 90th percentile. The
//! expected match of a later turn, which the source counts in messages, is the longest that any replica holds.

use super::in_flight::{CandidateSums, PrefillWork, work_of};
use isotherm_router::{Policy, PrefixMatch, Reason, ReplicaIndex, Request, Selection, View};

/// Share of the expected match that is followed.
const HIT_RATIO: f64 = 0.5;
/// Cost of a pair of tokens that attend to each other, in the cost of a token.
const PAIR_COST: f64 = 1e-4;

/// SMetric's session gate and product.
#[derive(Clone, Copy, Debug, Default)]
pub struct SMetric;

impl Policy for SMetric {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let sums = CandidateSums::of_candidates(view);
        let queued = |replica, uncached| queued_tokens(request, replica, uncached, &sums);
        if let Some((replica, matched)) = followed(request, view, &queued) {
            return Some(Selection::to(replica, Reason::Prefix, Some(matched)));
        }
        let cost = |replica, uncached| queued(replica, uncached) * sums.get(replica).requests;
        let (replica, matched) = view.cheapest(request, cost)?;
        Some(Selection::to(replica, Reason::Spread, Some(matched)))
    }

    /// Minus the queued work.
    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        let uncached = request.uncached_tokens(view.match_on(request, replica).depth);
        let sums = CandidateSums::of_candidates(view);
        -queued_tokens(request, replica, uncached, &sums)
    }
}

/// The candidate with the longest match, if a request of its session follows it.
fn followed(
    request: &Request,
    view: &View<'_>,
    queued: &impl Fn(ReplicaIndex, f64) -> f64,
) -> Option<(ReplicaIndex, PrefixMatch)> {
    if !view.knows_session(request.session?) {
        return None;
    }
    let token_s = view.prefill_token_s();
    let meets = |replica, uncached| queued(replica, uncached) * token_s <= view.ttft_slo_s();
    let (replica, matched) = view.cheapest(request, |_, uncached| uncached)?;
    let expected = view.longest_match(request, view.staying());
    let share = |matched: &PrefixMatch| request.fingerprint.share_at(matched.depth);
    let is_long = share(&matched) > HIT_RATIO * share(&expected);
    let mut any_meets = false;
    view.each_match(request, |other, other_match| {
        any_meets |= meets(other, request.uncached_tokens(other_match.depth));
    });
    let is_in_time = meets(replica, request.uncached_tokens(matched.depth));
    (is_long && (is_in_time || !any_meets)).then_some((replica, matched))
}

/// Queued work of a replica with this request, in tokens that attend to nothing.
fn queued_tokens(
    request: &Request,
    replica: ReplicaIndex,
    uncached: f64,
    sums: &CandidateSums,
) -> f64 {
    let PrefillWork { tokens, pairs } = sums
        .get(replica)
        .uncomputed
        .plus(work_of(request, uncached));
    tokens + PAIR_COST * pairs
}
