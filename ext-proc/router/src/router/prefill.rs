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

use crate::Request;
use crate::index::PrefixMatch;
use crate::pool_state::PoolState;
use crate::replica_index::{ReplicaIndex, ReplicaSet};

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
