//! The cost of forwarding and of staying, in seconds until the first token.
//!
//! SkyLB forwards a request when no local replica is free, and only then. Under load that rule costs much of the locality
//! that it is meant to keep: sessions change their region with every turn, and each region computes the prefix again.
//! Once the pool has measured its prefill speed, two exceptions hold:
//!
//! - A request leaves although a local replica is free, when an available peer holds more of its prefix and the saved
//!   prefill takes longer than the round trip and the peer's queue.
//! - A request stays although no local replica is free, while the wait and the prefill here cost less than the round trip,
//!   the queue and the prefill at the peer. The wait counts at least as long as it has lasted, so that a wrong estimate
//!   keeps no request.
//!
//! The pool's prefill speed stands for the peer's. Under a policy that ignores prefixes (`consistent_hash`) neither exception holds, since a ring knows no
//! prefixes.

use core::time::Duration;

use super::target::ForwardTarget;
use crate::index::PrefixIndex;
use crate::policy::uncached_tokens;
use crate::replica::Replicas;
use crate::replica_index::ReplicaSet;
use crate::{Reason, Request};

/// Compares a peer with the local replicas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForwardingCost<'a> {
    pub(crate) replicas: &'a Replicas,
    pub(crate) index: &'a PrefixIndex,
    /// Whether the policy ignores prefixes.
    pub(crate) ignores_prefixes: bool,
    /// Learned time that a request occupies a replica, in seconds.
    pub(crate) service_s: Option<f64>,
    /// Requests in flight at local replicas.
    pub(crate) in_flight: usize,
}

impl ForwardingCost<'_> {
    /// Whether a peer can be cheaper than a free local replica at all.
    pub(crate) fn is_measured(&self) -> bool {
        !self.ignores_prefixes && self.replicas.prefill_of_pool_s(0.0).is_some()
    }

    /// Whether the prefill that the peer's cache saves takes longer than the way to the peer.
    pub(crate) fn is_warmer(
        &self,
        target: &ForwardTarget,
        request: &Request,
        free: &ReplicaSet,
    ) -> bool {
        if target.reason != Reason::Prefix || free.is_empty() {
            return false;
        }
        let local = self.index.deepest(request.fingerprint.blocks(), free);
        let saved =
            uncached_tokens(request, local.depth) - uncached_tokens(request, target.matched.depth);
        let saved_s = self.replicas.prefill_of_pool_s(saved);
        saved_s.is_some_and(|saved_s| saved_s > target.estimated_ttft.as_secs_f64())
    }

    /// Whether a request that has waited for `waited` behind `ahead` others starts earlier here than at the peer.
    pub(crate) fn is_waiting_cheaper(
        &self,
        target: &ForwardTarget,
        request: &Request,
        waited: Duration,
        ahead: usize,
    ) -> bool {
        if self.ignores_prefixes {
            return false;
        }
        let blocks = request.fingerprint.blocks();
        let local = self.index.deepest(blocks, self.replicas.staying());
        let prefill_s = |depth| {
            let uncached = uncached_tokens(request, depth);
            self.replicas.prefill_of_pool_s(uncached)
        };
        let costs = || {
            let local_s = prefill_s(local.depth)?;
            let peer_s = prefill_s(target.matched.depth)?;
            let wait_s = self.wait_s(ahead)?.max(waited.as_secs_f64());
            Some((
                wait_s + local_s,
                target.estimated_ttft.as_secs_f64() + peer_s,
            ))
        };
        costs().is_some_and(|(local_s, peer_s)| local_s < peer_s)
    }

    /// Time until a request behind `ahead` others is dispatched, by Little's law; `None` before any request has ended.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn wait_s(&self, ahead: usize) -> Option<f64> {
        let service_s = self.service_s?;
        (self.in_flight > 0).then(|| (ahead + 1) as f64 * service_s / self.in_flight as f64)
    }
}
