//! Prefill by another replica: the prompt of a request is computed on a prefill replica, its answer is written elsewhere.
//!
//! The policy selects the replica that writes the answer (the *decode replica*), among those to which requests are
//! dispatched. Where many of the prompt's tokens are not in the cache of that replica, [`select_prefiller`] then
//! names the prefill replica that computes them soonest: its queued prefill, and the part of the prompt that it does not
//! hold at the speed that was measured on it. This one rule serves every policy. Engines hand the KV cache over by
//! themselves, so afterwards both replicas hold the prompt.
//!
//! ```text
//! dispatch ── claims on both replicas ──┬─ the response begins: the prefill replica has computed the prompt ─┐
//!                                       └─ end or abort before: the prompt is not known to be computed ──────┴─ end
//! ```
//! A request that ends without [`crate::Event::Began`] releases both claims. The verdict on the prefill replica always comes
//! at the end: a failed prefill shows as a failed response only.
//!
//! Prefill replicas have no queue: the one in front of the decode replicas paces both. Rejected: to select the prefill replica
//! first, since the uncached part depends on the decode replica, and `both` replicas that prefill for others, whose answers
//! would stall.

use crate::index::{AnswerKey, PrefixMatch};
use crate::policy::Dispatch;
use crate::pool_state::PoolState;
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::{ReplicaId, Request};

/// The part of a prompt that its replica caches, and the rest.
pub(super) struct PromptCoverage {
    pub(super) matched: PrefixMatch,
    /// Estimated tokens of an earlier answer behind the match.
    pub(super) remembered: f64,
    /// Estimated tokens that are in no cache of the replica.
    pub(super) uncached: f64,
}

/// The part of a prompt that the selected replica holds, and the part that is left.
pub(super) fn prompt_coverage(
    pool: &PoolState,
    request: &Request,
    selected: &Dispatch,
    replica: ReplicaId,
) -> PromptCoverage {
    let (caches, fingerprint) = (&pool.caches, &request.fingerprint);
    let deepest = || {
        caches
            .index
            .deepest_of(fingerprint.blocks(), selected.replica)
    };
    let matched = selected.matched.unwrap_or_else(deepest);
    let unmatched = request.uncached_tokens(matched.depth);
    let remembered = AnswerKey::matched(request, matched.depth).map_or(0.0, |key| {
        caches.answers.remembered(key, replica, unmatched)
    });
    let uncached = unmatched - caches.answers.expected(remembered);
    let share = fingerprint.share_at(matched.depth);
    let held = f64::from(share_of(request.prompt_tokens, share));
    PromptCoverage {
        matched,
        remembered,
        uncached: pool.replicas.uncached_on(selected.replica, uncached, held),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive number of tokens; saturates"
)]
pub(super) const fn whole_tokens(tokens: f64) -> u32 {
    tokens.round() as u32
}

/// A share of a number of tokens, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a u32 that is between 0 and 1 is a u32"
)]
pub(super) fn share_of(tokens: u32, share: f64) -> u32 {
    (f64::from(tokens) * share.clamp(0.0, 1.0)) as u32
}

/// The prefill replica that was selected for a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefiller {
    pub(super) replica: ReplicaIndex,
    /// The part of the prompt that the prefill replica holds.
    pub(super) matched: PrefixMatch,
}

/// Selects the prefill replica for a request whose decode replica would have to compute this many tokens; `None` when
/// that replica computes them itself.
pub(super) fn select_prefiller(
    pool: &PoolState,
    request: &Request,
    uncached: f64,
    prefillers: &ReplicaSet,
) -> Option<Prefiller> {
    let is_short = uncached < f64::from(pool.config.prefill_tokens_min);
    if prefillers.is_empty() || is_short {
        return None;
    }
    let (replica, matched) = pool.view(prefillers).cheapest_prefiller(request)?;
    Some(Prefiller { replica, matched })
}
