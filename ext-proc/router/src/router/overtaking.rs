//! Overtaking among queued requests: how often, and how long, later requests may go first.
//!
//! A request is overtaken when a later one goes to a replica that it would have taken itself. A replica that it leaves free
//! for a warmer one is no loss to it, so dispatches to that replica do not count. A pool with more replicas dispatches more
//! requests in the same time, so the overtake limit grows with the pool. No bound depends on the rate of requests alone: a
//! request that has waited half of the longest wait goes next, to any replica that it may use.
//!
//! A policy may put requests past the SLO behind the others. Long cold prompts are past it whenever a pool is saturated, and
//! would be the one class that is rejected. After half of the longest wait, such prompts therefore get a share of the
//! replicas' time.

use super::Router;
use crate::constant::constants;
use crate::policy::{Dispatch, LOOKED_AT_MAX};
use crate::queue::{LinePlace, QueueSeq, QueuedRequest};
use crate::replica_index::ReplicaIndex;
use crate::{Request, Time};

constants! {
    /// Overtake limit of a queued request in a pool of up to eight replicas.
    OVERTAKES_MIN: u32 = 64;
    /// Overtake limit in a larger pool, for each replica: such a pool dispatches more requests in the same time.
    OVERTAKES_PER_REPLICA: u32 = 8;
    /// Divisor of the longest wait: a request that has waited for the quotient goes next.
    ENTITLED_DIVISOR: u32 = 2;
    /// Share of the replicas' time for long prompts past the SLO that have waited half of the longest wait.
    PAST_SLO_SHARE: f64 = 0.05;
    /// Bound on the unused time of that share, in seconds: a quiet hour must not buy a burst of long prompts.
    PAST_SLO_S_MAX: f64 = 10.0;
}

/// The replicas' time that long prompts past the SLO may take before other requests do, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PastSloCredit {
    seconds: f64,
    as_of: Time,
}

impl PastSloCredit {
    /// Adds the credit that a pool of so many replicas has earned by `now`.
    pub(super) fn advance(&mut self, replicas: f64, now: Time) {
        let earned = PAST_SLO_SHARE.get() * replicas * now.since(self.as_of).as_secs_f64();
        self.seconds = (self.seconds + earned).min(PAST_SLO_S_MAX.get());
        self.as_of = now;
    }
}

impl Router {
    /// The overtake limit of a queued request.
    pub(super) fn overtakes_max(&self) -> u32 {
        let replicas = u32::try_from(self.pool.replicas.staying().len()).unwrap_or(u32::MAX);
        replicas
            .saturating_mul(OVERTAKES_PER_REPLICA.get())
            .max(OVERTAKES_MIN.get())
    }

    /// The queued request that must go next to this replica: one at the overtake limit, or one that has waited too long.
    pub(super) fn entitled(&self, replica: ReplicaIndex) -> Option<QueueSeq> {
        let queue = &self.pool.queue;
        let first = queue.within_slo(replica).next();
        let has_waited = first.filter(|(_, first)| self.has_waited(first));
        let has_waited = has_waited.map(|(seq, _)| seq);
        // The first request in the line is in front of any other one.
        let within_slo = has_waited.or_else(|| queue.at_overtake_limit(replica));
        within_slo.or_else(|| {
            let oldest = queue.long_prompt_past_slo(replica)?;
            self.is_due_past_slo(oldest).then_some(oldest)
        })
    }

    /// Whether a prompt takes longer to compute than the SLO, even on the fastest replica behind the longest known prefix, where a
    /// policy puts requests past the SLO last.
    pub(super) fn is_long_prompt(&self, request: &Request) -> bool {
        if !self.policy.rules().past_slo_last {
            return false;
        }
        let pool = &self.pool;
        let known = pool.index.known(request.fingerprint.blocks());
        let tokens = request.uncached_tokens(known.depth);
        let takes_s = tokens * pool.replicas.fastest().prefill.each_s;
        takes_s > pool.ttft_slo_of(request).as_secs_f64()
    }

    /// Whether a request has waited for so long that it goes next.
    fn has_waited(&self, queued: &QueuedRequest) -> bool {
        let after = self.pool.config.wait_max(queued.waits_as()) / ENTITLED_DIVISOR.get();
        queued.entered.after(after) <= self.pool.now
    }

    /// Whether a long prompt past the SLO goes next, by the share of such prompts.
    fn is_due_past_slo(&self, seq: QueueSeq) -> bool {
        let queued = self.pool.queue.get(seq);
        self.past_slo_credit.seconds > 0.0
            && queued.is_some_and(|queued| self.waits_past_slo(queued))
    }

    /// Whether a queued request has a long prompt, is past the SLO, and has waited half of the longest wait.
    fn waits_past_slo(&self, queued: &QueuedRequest) -> bool {
        queued.is_long_prompt && self.pool.queue.is_late(queued) && self.has_waited(queued)
    }

    /// Counts the dispatch of a queued request for the share of long prompts past the SLO.
    pub(super) fn count_past_slo(&mut self, seq: QueueSeq, dispatch: Dispatch) {
        let queued = self.pool.queue.get(seq);
        let Some(queued) = queued.filter(|queued| self.waits_past_slo(queued)) else {
            return;
        };
        let depth = dispatch.matched.map_or(0, |matched| matched.depth);
        let tokens = queued.request.uncached_tokens(depth);
        let takes_s = self.pool.replicas.prefill_s(dispatch.replica, tokens);
        self.past_slo_credit.seconds -= takes_s;
    }

    /// Whether a queued request must go next, to any replica that it may use.
    pub(super) fn is_entitled(&self, seq: QueueSeq) -> bool {
        let queue = &self.pool.queue;
        let is_within_slo = queue.get(seq).is_some_and(|queued| {
            !queue.is_late(queued)
                && (queued.overtaken >= self.overtakes_max() || self.has_waited(queued))
        });
        is_within_slo || self.is_due_past_slo(seq)
    }

    /// The queued request that must go to a replica before an arriving one does.
    pub(super) fn entitled_before(&self, dispatch: Dispatch) -> Option<QueueSeq> {
        let oldest = || {
            let mut eligible = self.pool.queue.within_slo(dispatch.replica);
            eligible.next().map(|(seq, _)| seq)
        };
        let entitled = self.entitled(dispatch.replica);
        entitled.or_else(|| self.is_crowded().then(oldest).flatten())
    }

    /// Whether the requests that wait for a preferred replica reach the overtake limit: other replicas would idle beside a long queue.
    pub(super) fn is_crowded(&self) -> bool {
        self.pool.queue.delayed() >= self.overtakes_max() as usize
            && !self.policy.rules().is_bound_to_candidates
    }

    /// Counts an overtake for the requests in front of a position that would have taken the replica of the dispatched one.
    pub(super) fn count_overtakes(&mut self, place: LinePlace, replica: ReplicaIndex) {
        let overtakes_max = self.overtakes_max();
        let policy = &self.policy;
        self.pool
            .queue
            .count_overtakes(place, replica, LOOKED_AT_MAX, overtakes_max, |queued| {
                policy.would_take(queued, replica)
            });
    }
}
