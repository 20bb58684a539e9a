//! What it is worth to stay or to leave, in seconds until the first token.
//!
//! SkyLB sends a request away when no local replica is free, and only then. Measured on three regions, that rule costs
//! much of the locality that it is meant to keep: under load, sessions change their region with every turn, as now this
//! and now that replica happens to be free, and each region computes the prefix again. So once the pool has measured how
//! fast it computes prompts, two exceptions hold:
//!
//! - A request whose prefix lies in an available peer more than here goes there although somebody is free here, when
//!   the computation that it saves takes longer than the way there and the queue there.
//! - A request that finds nobody free here waits as long as the wait and what is to be computed here take less time
//!   than the way there, the queue there and what is to be computed there. One that has waited longer than that leaves:
//!   an estimate that was wrong holds nobody.
//!
//! How fast is what finished requests have measured of the whole pool (`replica/backlog.rs`), presumed to be the same there.
//!
//! Under `consistent_hash` the ring knows nothing of prefixes, and neither holds.

use core::time::Duration;

use super::Router;
use crate::peers::ForwardTarget;
use crate::policy::uncached_tokens;
use crate::replica_index::ReplicaSet;
use crate::{PolicyName, Reason, Request};

impl Router {
    /// Where a request goes although somebody is free here, if anywhere.
    pub(super) fn find_warmer_peer(&self, request: &Request) -> Option<ForwardTarget> {
        let tried = request.tried()?;
        // Nobody there; nobody here, and the queue asks then; or nothing to weigh yet.
        if self.peers.available().is_empty()
            || self.replicas.available().is_empty()
            || self.replicas.prefill_of_pool_s(0.0).is_none()
            || self.config.policy == PolicyName::ConsistentHash
        {
            return None;
        }
        let target = self.peers.choose(request, tried, self.config.policy)?;
        self.is_warmer(&target, request, self.replicas.available())
            .then_some(target)
    }

    /// Whether going there beats a replica that is free here.
    pub(super) fn is_warmer(
        &self,
        target: &ForwardTarget,
        request: &Request,
        free: &ReplicaSet,
    ) -> bool {
        if target.reason != Reason::Prefix || free.is_empty() {
            return false;
        }
        let here = self.index.deepest(request.fingerprint.blocks(), free);
        let saved =
            uncached_tokens(request, here.depth) - uncached_tokens(request, target.matched.depth);
        self.replicas
            .prefill_of_pool_s(saved)
            .is_some_and(|saved_s| saved_s > target.estimated_ttft.as_secs_f64())
    }

    /// Whether waiting here, behind so many others, beats going there.
    pub(super) fn is_waiting_cheaper(
        &self,
        target: &ForwardTarget,
        request: &Request,
        waited: Duration,
        ahead: usize,
    ) -> bool {
        if self.config.policy == PolicyName::ConsistentHash {
            return false;
        }
        let here = self
            .index
            .deepest(request.fingerprint.blocks(), self.replicas.staying());
        let costs = || {
            let computing_s = |depth| {
                self.replicas
                    .prefill_of_pool_s(uncached_tokens(request, depth))
            };
            let here_s = computing_s(here.depth)?;
            let there_s = computing_s(target.matched.depth)?;
            let wait_s = self.wait_s(ahead)?.max(waited.as_secs_f64());
            let away_s = target.estimated_ttft.as_secs_f64();
            Some((wait_s + here_s, away_s + there_s))
        };
        costs().is_some_and(|(here_s, there_s)| here_s < there_s)
    }

    /// When it is the turn of one with so many in front of it, by Little's law; once a request has ended.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn wait_s(&self, ahead: usize) -> Option<f64> {
        let service_s = self.service_s?;
        let busy = self.in_flight.len();
        (busy > 0).then(|| (ahead + 1) as f64 * service_s / busy as f64)
    }
}
