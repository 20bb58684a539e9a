//! The cost of staying in the queue, in seconds until the first token (`docs/design/forwarding.md`).
//!
//! SkyLB forwards a request exactly when no local replica is free. A request that starts earlier here stays, by the measured prefill
//! speed of this pool, which stands for the peer's. No request stays for a policy that ignores prefixes, nor under
//! [`crate::ForwardingRule::Published`].

use core::time::Duration;

use super::target::ForwardTarget;
use crate::Request;
use crate::pool_state::PoolState;

impl PoolState {
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
