//! The cost of forwarding and of staying, in seconds until the first token (`docs/design/forwarding.md`).
//!
//! SkyLB forwards a request exactly when no local replica is free. Two exceptions need the measured prefill speed of this pool,
//! which stands for the peer's: a request leaves although a local replica is free, or stays although none is. A policy that
//! ignores prefixes makes neither exception, nor does a pool under [`crate::ForwardingRule::Published`].

use core::time::Duration;

use super::target::ForwardTarget;
use crate::pool_state::PoolState;
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::{Reason, Request};

impl PoolState {
    /// Whether the prefill that the peer's cache saves takes longer than the estimated time to first token at the peer.
    pub(crate) fn is_warmer(
        &self,
        target: &ForwardTarget,
        request: &Request,
        free: &ReplicaSet,
    ) -> bool {
        if target.reason != Reason::Prefix {
            return false;
        }
        let local = self.index.deepest(request.fingerprint.blocks(), free);
        let saved =
            request.uncached_tokens(local.depth) - request.uncached_tokens(target.matched.depth);
        let saved_s = self.replicas.prefill_of_pool_s(saved);
        saved_s.is_some_and(|saved_s| saved_s > target.estimated_ttft.as_secs_f64())
    }

    /// Whether a request that waits for this busy replica starts earlier there than at the peer.
    pub(crate) fn is_preferred_sooner(
        &self,
        target: &ForwardTarget,
        request: &Request,
        preferred: ReplicaIndex,
    ) -> bool {
        let blocks = request.fingerprint.blocks();
        let here = self.index.deepest_of(blocks, preferred);
        let saved =
            request.uncached_tokens(target.matched.depth) - request.uncached_tokens(here.depth);
        let wait_s = self.turn_s(preferred) + self.replicas.backlog_s(preferred, self.now);
        let saved_s = self.replicas.prefill_of_pool_s(saved).unwrap_or_default();
        wait_s < target.estimated_ttft.as_secs_f64() + saved_s
    }

    /// Whether a request that has waited for `waited` behind `ahead` others starts earlier here than at the peer.
    pub(crate) fn is_waiting_cheaper(
        &self,
        target: &ForwardTarget,
        request: &Request,
        waited: Duration,
        ahead: usize,
    ) -> bool {
        let blocks = request.fingerprint.blocks();
        let local = self.index.deepest(blocks, self.replicas.staying());
        let prefill_s = |depth| {
            let uncached = request.uncached_tokens(depth);
            self.replicas.prefill_of_pool_s(uncached)
        };
        let is_cheaper = || {
            let wait_s = self.wait_s(ahead)?.max(waited.as_secs_f64());
            let local_s = wait_s + prefill_s(local.depth)?;
            let peer_s = target.estimated_ttft.as_secs_f64() + prefill_s(target.matched.depth)?;
            Some(local_s < peer_s)
        };
        is_cheaper().unwrap_or(false)
    }

    /// Time until a request behind `ahead` others is dispatched, by Little's law; `None` before any request has ended.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn wait_s(&self, ahead: usize) -> Option<f64> {
        let in_flight = self.in_flight.len();
        (in_flight > 0).then_some((ahead + 1) as f64 * self.service_s? / in_flight as f64)
    }
}
