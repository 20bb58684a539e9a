//! Ends of waits: which queued requests go next, whatever a policy prefers.
//!
//! A policy may let requests wait for a particular replica. Two bounds keep others from idling: a request that has waited half of
//! the longest wait goes to any replica that it may use, and so does each one while too many wait for particular replicas. A policy
//! may ask some requests before others: one that was overtaken often enough comes first.
//!
//! A policy may put requests past the SLO behind the others. Long cold prompts are past it whenever a pool is saturated, and
//! would be the one class that is rejected. After half of the longest wait, such prompts therefore get a share of the
//! replicas' time.

use crate::constant::constants;
use crate::policy::PolicyRules;
use crate::pool_state::PoolState;
use crate::queue::QueuedRequest;
use crate::{Request, Time};

constants! {
    /// Limit of [`overtakes_max`] for each replica, as if there were eight at least. Guards: no request starves, no replica idles beside
    /// a long queue, and the limit means the same time in pools of all sizes.
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

    /// Takes the time of a dispatched prompt.
    pub(super) fn spend(&mut self, seconds: f64) {
        self.seconds -= seconds;
    }

    /// Whether a long prompt past the SLO goes next.
    pub(super) fn entitles(&self, pool: &PoolState, queued: &QueuedRequest) -> bool {
        self.seconds > 0.0 && waits_past_slo(pool, queued)
    }

    /// Whether a queued request goes to any replica that it may use, rather than wait for a particular one.
    pub(super) fn must_go(
        &self,
        pool: &PoolState,
        rules: PolicyRules,
        queued: &QueuedRequest,
    ) -> bool {
        is_crowded(pool, rules)
            || !pool.queue.is_late(queued) && has_waited(pool, queued)
            || self.entitles(pool, queued)
    }
}

/// Whether a prompt takes longer to compute than the SLO, even on the fastest replica behind the longest known prefix, where a
/// policy puts requests past the SLO last.
pub(super) fn is_long_prompt(pool: &PoolState, rules: PolicyRules, request: &Request) -> bool {
    rules.past_slo_last && {
        let known = pool.caches.index.known(request.fingerprint.blocks());
        let tokens = request.uncached_tokens(known.depth);
        let takes_s = tokens * pool.replicas.fastest().each_s;
        takes_s > pool.ttft_slo_of(request).as_secs_f64()
    }
}

/// Whether a queued request has a long prompt, is past the SLO, and has waited half of the longest wait.
pub(super) fn waits_past_slo(pool: &PoolState, queued: &QueuedRequest) -> bool {
    queued.is_long_prompt && pool.queue.is_late(queued) && has_waited(pool, queued)
}

/// Whether a request has waited for so long that it goes next.
fn has_waited(pool: &PoolState, queued: &QueuedRequest) -> bool {
    let after = pool.config.wait_max(queued.waits_as()) / ENTITLED_DIVISOR.get();
    queued.entered.after(after) <= pool.now
}

/// Whether so many requests wait for particular replicas that other replicas would idle beside a long queue.
pub(super) fn is_crowded(pool: &PoolState, rules: PolicyRules) -> bool {
    pool.queue.delayed() >= overtakes_max(pool) as usize && !rules.is_bound_to_candidates
}

/// Limit of the requests that wait for particular replicas, and of the requests that overtake one. It grows
/// with the pool, which serves more requests in the same time.
pub(super) fn overtakes_max(pool: &PoolState) -> u32 {
    let replicas = u32::try_from(pool.replicas.staying().len()).unwrap_or(u32::MAX);
    replicas.max(8).saturating_mul(OVERTAKES_PER_REPLICA.get())
}
