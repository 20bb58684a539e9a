//! A round of service: the freed replicas, and the requests that are asked for them.

use core::time::Duration;

use smallvec::SmallVec;

use super::entitled::{PastSloCredit, is_crowded, overtakes_max};
use crate::Time;
use crate::constant::constants;
use crate::policy::Policy;
use crate::pool_state::PoolState;
use crate::queue::QueueSeq;
use crate::replica_index::ReplicaIndex;

constants! {
    /// Interval at which free replicas are shown again to requests that wait for a particular one.
    REVIEW_INTERVAL: Duration = Duration::from_millis(50);
    /// Free replicas that one review shows.
    REVIEWED_MAX: usize = 16;
}

/// Requests that are found at a time to be asked: mostly the first ones take what is free.
const ASKED_AT_ONCE: usize = 16;
/// The first requests of the line, among which those worth most to a freed replica are asked first.
const WEIGHED_MAX: usize = 64;
/// Requests that wait for a replica or for any, and are looked at to find those, at most.
const LOOKED_AT_MAX: usize = 1_024;
/// Requests that wait for other replicas, and are asked in a review, at most.
const REVIEWED_REQUESTS_MAX: usize = 64;
/// The requests that are asked for a free replica, each with its place among them by the order of service.
pub(super) type AskedRequests = SmallVec<[(usize, QueueSeq); ASKED_AT_ONCE]>;

/// The round of service that goes on, and the reviews.
#[derive(Debug, Default)]
pub(super) struct Service {
    /// Replicas that are still to be shown.
    pub(super) freed: Vec<ReplicaIndex>,
    /// Number of the round: a request is asked once in each.
    pub(super) round: u64,
    /// Whether the round is a review, which asks the requests that wait for other replicas, too.
    is_review: bool,
    /// Time of the last review.
    reviewed: Time,
    /// The replica that the next review begins with.
    next: ReplicaIndex,
    /// Whether a request may wait beside a free replica, though for none in particular.
    pub(super) needs_review: bool,
    /// Whether the last event forwarded as many requests as one event may.
    pub(super) has_more_to_forward: bool,
    /// Time that long prompts past the SLO may take.
    pub(super) past_slo: PastSloCredit,
}

impl Service {
    /// Whether the service goes on at once.
    pub(super) const fn is_pending(&self) -> bool {
        !self.freed.is_empty()
    }

    /// The time at which queued requests are next served without an event.
    pub(super) fn next_due(&self, pool: &PoolState) -> Option<Time> {
        if self.is_pending() {
            return Some(pool.now);
        }
        self.next_review(pool)
    }

    /// The time of the next review, when a request waits for a particular replica while another one is free.
    fn next_review(&self, pool: &PoolState) -> Option<Time> {
        let is_needed = pool.queue.delayed() > 0 || self.needs_review;
        let is_due = is_needed && !pool.replicas.available().is_empty();
        is_due.then(|| self.reviewed.after(REVIEW_INTERVAL.get()))
    }

    /// Adds the freed replicas to the round, and those of a review that is due. A round with new replicas asks every request again.
    pub(super) fn begin_round(&mut self, pool: &mut PoolState) {
        let freed = pool.replicas.take_freed();
        let is_review = self.next_review(pool).is_some_and(|next| next <= pool.now);
        if freed.is_empty() && !is_review {
            return;
        }
        self.round += 1;
        self.is_review = is_review;
        self.freed.extend(freed);
        if is_review {
            self.begin_review(pool);
        }
        self.freed.sort_unstable();
        self.freed.dedup();
    }

    /// Adds some of the available replicas to the round, in turn from one review to the next.
    fn begin_review(&mut self, pool: &PoolState) {
        self.reviewed = pool.now;
        self.needs_review = false;
        let available = pool.replicas.available();
        for _ in 0..available.len().min(REVIEWED_MAX.get()) {
            let Some(replica) = available.next_round(self.next) else {
                return;
            };
            self.freed.push(replica);
            self.next = ReplicaIndex(replica.0.wrapping_add(1));
        }
    }

    /// Ends the round, if no request goes to the replicas that are left.
    pub(super) fn end_round(&mut self, pool: &PoolState) {
        let mut freed = core::mem::take(&mut self.freed).into_iter();
        self.needs_review |= freed.any(|replica| pool.queue.has_eligible(replica));
    }

    /// The requests that are asked next, as far as a freed replica may serve them: a long prompt whose turn it is, the first request if it
    /// goes to any replica, and then some that wait for one of the freed replicas or for any; at last, in a review, some that wait
    /// for others.
    pub(super) fn next_asked(&self, pool: &PoolState, policy: &dyn Policy) -> AskedRequests {
        let (queue, freed, rules) = (&pool.queue, &*self.freed, policy.rules());
        let is_asked = |seq: &QueueSeq| {
            let queued = queue.get(*seq);
            queued.is_some_and(|queued| queued.turns.asked_in != self.round)
        };
        let entitled = |seq: &QueueSeq| {
            let queued = queue.get(*seq);
            queued.is_some_and(|queued| self.past_slo.entitles(pool, queued))
        };
        let must_go = |seq: &QueueSeq| {
            let queued = queue.get(*seq);
            queued.is_some_and(|queued| self.past_slo.must_go(pool, rules, queued))
        };
        let long = queue.long_prompt_past_slo(freed).filter(entitled);
        // Without a request that waits for a particular replica, the first open one is the first of all.
        let first = (queue.delayed() > 0).then(|| queue.eligible(freed).next());
        let first = first.flatten().filter(must_go);
        let urgent = long.into_iter().chain(first).filter(is_asked);
        let mut asked: AskedRequests = urgent.map(|seq| (0, seq)).collect();
        let open = queue.open_to(freed).take(LOOKED_AT_MAX).filter(is_asked);
        self.add_by_worth(pool, policy, open, &mut asked);
        if asked.is_empty() && (self.is_review || is_crowded(pool, rules)) {
            let others = queue.eligible(freed).take(REVIEWED_REQUESTS_MAX);
            self.add_by_worth(pool, policy, others.filter(is_asked), &mut asked);
        }
        asked
    }

    /// Adds the first of some requests, those worth most to a freed replica first.
    fn add_by_worth(
        &self,
        pool: &PoolState,
        policy: &dyn Policy,
        requests: impl Iterator<Item = QueueSeq>,
        asked: &mut AskedRequests,
    ) {
        let freed = self.freed.first().copied();
        let replica = freed.filter(|_| policy.rules().weighs_requests);
        let Some(replica) = replica else {
            asked.extend(requests.take(ASKED_AT_ONCE).enumerate());
            return;
        };
        let (available, overtakes_max) = (pool.replicas.available(), overtakes_max(pool));
        let weigh = |(place, seq): (usize, QueueSeq)| {
            let queued = pool.queue.get(seq)?;
            let view = pool.view_of(queued, available);
            let worth = match queued.turns.overtaken < overtakes_max {
                true => policy.worth(&queued.request, replica, &view),
                false => f64::INFINITY,
            };
            Some((worth, (place, seq)))
        };
        let first = requests.take(WEIGHED_MAX).enumerate();
        let mut weighed: SmallVec<[_; WEIGHED_MAX]> = first.filter_map(weigh).collect();
        weighed.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        asked.extend(weighed.into_iter().map(|(_, request)| request));
    }
}
