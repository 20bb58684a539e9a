//! The queue of requests that wait for a replica, in order of arrival (`docs/design/queue.md`).
//!
//! A request that the gateway or its adapter restricts to some replicas is indexed under each of them, so that it neither blocks the others
//! nor has to be searched. A request that may be forwarded is indexed under the set of peers that it returned from, which is
//! nearly always the empty set. Each operation costs the logarithm of the queue's length.

mod eligible;

use core::cell::Cell;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use self::eligible::EligibleSet;
use crate::index::PrefixMatch;
use crate::replica_index::ReplicaIndex;
use crate::{PeerId, Request, RequestId, Time};

/// A request's position in the order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueSeq(u64);

#[derive(Clone, Debug)]
pub(crate) struct QueuedRequest {
    pub(crate) seq: QueueSeq,
    pub(crate) request: Request,
    /// Prompt tokens, by the estimate of the filter; `request` has them by the learned length of a token.
    pub(crate) estimated_tokens: u32,
    pub(crate) arrived: Time,
    /// Whether the request returned from a peer. A full queue does not reject it.
    pub(crate) has_returned: bool,
    /// Whether the prompt takes longer to compute than the SLO, so that the request is past it in any case.
    pub(crate) is_long_prompt: bool,
    /// Number of later requests that went first to a replica which this request would have taken.
    pub(crate) overtaken: u32,
    /// The replicas that may serve the request, where the gateway or its adapter restricts them.
    pub(crate) pinned: Option<Box<[ReplicaIndex]>>,
    /// The replica that the request waits for, although others may be free.
    pub(crate) preferred: Option<ReplicaIndex>,
    /// Since when the request waits for a particular replica while others are free.
    pub(crate) delayed_since: Option<Time>,
    /// The replica whose cache suits the request best, where the policy named one when the request began to wait.
    pub(crate) affinity: Option<ReplicaIndex>,
    /// The longest known prefix of the prompt at the last lookup, where the next one begins.
    pub(crate) known: Cell<PrefixMatch>,
}

/// Wait of a request so far, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitTimes {
    /// Time since the request arrived.
    pub(crate) waited_s: f64,
    /// Time that the request has waited for a particular replica while others were free.
    pub(crate) delayed_s: f64,
}

impl QueuedRequest {
    pub(crate) fn waited(&self, now: Time) -> WaitTimes {
        let since = |then: Time| now.since(then).as_secs_f64();
        WaitTimes {
            waited_s: since(self.arrived),
            delayed_s: self.delayed_since.map_or(0.0, since),
        }
    }
}

/// The peers that a request has returned from, in order of id.
type TriedPeers = SmallVec<[PeerId; 2]>;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    queued: BTreeMap<QueueSeq, QueuedRequest>,
    seqs: BTreeMap<RequestId, QueueSeq>,
    /// All requests.
    eligible: EligibleSet,
    /// The requests that must not be overtaken any more.
    at_overtake_limit: EligibleSet,
    /// The requests with long prompts.
    long_prompts: EligibleSet,
    /// The requests under their affinity replica.
    by_affinity: BTreeSet<(ReplicaIndex, QueueSeq)>,
    /// The requests that may be forwarded, by the peers that they have returned from.
    forwardable: BTreeMap<TriedPeers, BTreeSet<QueueSeq>>,
    /// The number of requests that wait for each replica in particular.
    preferred_counts: BTreeMap<ReplicaIndex, usize>,
    /// The number of requests that wait for a particular replica.
    delayed: usize,
    /// The first request that is not past the SLO; those in front of it come last.
    past_slo: QueueSeq,
    next: u64,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.queued.len()
    }

    /// Whether any request is restricted to this replica among others.
    pub(crate) fn has_pinned_to(&self, replica: ReplicaIndex) -> bool {
        self.eligible.has_pinned_to(replica)
    }

    /// Number of pairs of a restricted request and a replica that may serve it.
    pub(crate) fn pins(&self) -> usize {
        self.eligible.pins()
    }

    pub(crate) fn contains(&self, id: RequestId) -> bool {
        self.seqs.contains_key(&id)
    }

    /// A position behind all earlier ones.
    pub(crate) fn next_seq(&mut self) -> QueueSeq {
        let seq = QueueSeq(self.next);
        self.next += 1;
        seq
    }

    /// Whether any request waits for a particular replica.
    pub(crate) fn has_preferences(&self) -> bool {
        !self.preferred_counts.is_empty()
    }

    /// The number of requests that wait for a particular replica.
    pub(crate) const fn delayed(&self) -> usize {
        self.delayed
    }

    /// The number of requests that wait for this replica in particular.
    pub(crate) fn preferring(&self, replica: ReplicaIndex) -> usize {
        self.preferred_counts
            .get(&replica)
            .copied()
            .unwrap_or_default()
    }

    /// Lets a request wait for this replica, or for any.
    pub(crate) fn set_preferred(
        &mut self,
        seq: QueueSeq,
        preferred: Option<ReplicaIndex>,
        now: Time,
    ) {
        let Some(queued) = self.queued.get_mut(&seq) else {
            return;
        };
        if preferred.is_some() {
            queued.delayed_since.get_or_insert(now);
        }
        let before = core::mem::replace(&mut queued.preferred, preferred);
        self.count_preferred(before, preferred);
    }

    /// Lets the requests that waited for this replica wait for any; returns whether there were some.
    pub(crate) fn forget_preferred(&mut self, replica: ReplicaIndex) -> bool {
        let Some(count) = self.preferred_counts.remove(&replica) else {
            return false;
        };
        self.delayed = self.delayed.saturating_sub(count);
        for queued in self.queued.values_mut() {
            if queued.preferred == Some(replica) {
                queued.preferred = None;
                queued.delayed_since = None;
            }
        }
        true
    }

    fn count_preferred(&mut self, before: Option<ReplicaIndex>, after: Option<ReplicaIndex>) {
        if before == after {
            return;
        }
        self.delayed = self.delayed + usize::from(after.is_some()) - usize::from(before.is_some());
        if let Some(replica) = before
            && let Some(count) = self.preferred_counts.get_mut(&replica)
        {
            *count -= 1;
            if *count == 0 {
                self.preferred_counts.remove(&replica);
            }
        }
        if let Some(replica) = after {
            *self.preferred_counts.entry(replica).or_default() += 1;
        }
    }

    /// Enters a request at its position: at the end, unless it returned from a peer.
    pub(crate) fn push(&mut self, queued: QueuedRequest) -> QueueSeq {
        let seq = queued.seq;
        self.count_preferred(None, queued.preferred);
        self.seqs.insert(queued.request.id, seq);
        if let Some(tried) = tried_of(&queued.request) {
            self.forwardable.entry(tried).or_default().insert(seq);
        }
        self.eligible.insert(seq, queued.pinned.as_deref());
        if queued.is_long_prompt {
            self.long_prompts.insert(seq, queued.pinned.as_deref());
        }
        self.by_affinity
            .extend(queued.affinity.map(|replica| (replica, seq)));
        self.queued.insert(seq, queued);
        seq
    }

    /// All requests, oldest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &QueuedRequest> + '_ {
        self.queued.values()
    }

    pub(crate) fn get(&self, seq: QueueSeq) -> Option<&QueuedRequest> {
        self.queued.get(&seq)
    }

    /// Whether a request is queued and this replica may serve it.
    pub(crate) fn may_go(&self, seq: QueueSeq, replica: ReplicaIndex) -> bool {
        self.get(seq).is_some_and(|queued| {
            let pinned = queued.pinned.as_deref();
            pinned.is_none_or(|replicas| replicas.contains(&replica))
        })
    }

    pub(crate) fn seq_of(&self, id: RequestId) -> Option<QueueSeq> {
        self.seqs.get(&id).copied()
    }

    pub(crate) fn remove(&mut self, seq: QueueSeq) -> Option<QueuedRequest> {
        let queued = self.queued.remove(&seq)?;
        self.count_preferred(queued.preferred, None);
        self.seqs.remove(&queued.request.id);
        let pinned = queued.pinned.as_deref();
        self.eligible.remove(seq, pinned);
        self.at_overtake_limit.remove(seq, pinned);
        self.long_prompts.remove(seq, pinned);
        if let Some(replica) = queued.affinity {
            self.by_affinity.remove(&(replica, seq));
        }
        if let Some(tried) = tried_of(&queued.request)
            && let Some(waiting) = self.forwardable.get_mut(&tried)
        {
            waiting.remove(&seq);
            if waiting.is_empty() {
                self.forwardable.remove(&tried);
            }
        }
        Some(queued)
    }

    pub(crate) fn oldest(&self) -> Option<(QueueSeq, &QueuedRequest)> {
        self.queued.first_key_value().map(|(p, w)| (*p, w))
    }

    /// The oldest request, if it has waited for this long.
    pub(crate) fn expired(&self, now: Time, wait_max: Duration) -> Option<QueueSeq> {
        self.oldest()
            .filter(|(_, queued)| queued.arrived.after(wait_max) <= now)
            .map(|(seq, _)| seq)
    }

    /// The oldest request at or behind `from` that may be forwarded; `is_open_to` says whether a peer is left for a set of
    /// tried ones.
    pub(crate) fn next_forwardable(
        &self,
        from: QueueSeq,
        is_open_to: impl Fn(&[PeerId]) -> bool,
    ) -> Option<QueueSeq> {
        self.forwardable
            .iter()
            .filter(|(tried, _)| is_open_to(tried))
            .filter_map(|(_, waiting)| waiting.range(from..).next().copied())
            .min()
    }

    /// The number of requests from one position up to another, counted up to a bound.
    pub(crate) fn count_between(&self, from: QueueSeq, to: QueueSeq, at_most: usize) -> usize {
        if from >= to {
            return 0;
        }
        self.queued.range(from..to).take(at_most).count()
    }

    /// Puts the requests that have waited for this long behind the others, up to so many of them. They may be overtaken
    /// without bound.
    pub(crate) fn mark_past_slo(&mut self, now: Time, after: Duration, at_most: usize) {
        let queued = self.queued.range(self.past_slo..).take(at_most);
        let late = queued.take_while(|(_, queued)| queued.arrived.after(after) <= now);
        if let Some((last, _)) = late.last() {
            self.past_slo = last.next();
        }
    }

    /// Forgets which requests are past the SLO, since the SLO has changed.
    pub(crate) const fn clear_past_slo(&mut self) {
        self.past_slo = QueueSeq::FIRST;
    }

    pub(crate) fn is_within_slo(&self, seq: QueueSeq) -> bool {
        seq >= self.past_slo
    }

    /// The first request in the order of service: oldest first, those past the SLO behind the others.
    pub(crate) fn first_in_order(&self) -> Option<QueueSeq> {
        let within_slo = self.queued.range(self.past_slo..).next();
        let first = within_slo.or_else(|| self.queued.first_key_value());
        first.map(|(seq, _)| *seq)
    }

    /// The request behind this position in the order of service.
    pub(crate) fn next_in_order(&self, seq: QueueSeq) -> Option<QueueSeq> {
        let next = self.queued.range(seq.next()..).next().map(|(seq, _)| *seq);
        if self.is_within_slo(seq) {
            let first = self.queued.first_key_value().map(|(seq, _)| *seq);
            next.or_else(|| first.filter(|first| !self.is_within_slo(*first)))
        } else {
            next.filter(|next| !self.is_within_slo(*next))
        }
    }

    /// The requests that this replica may serve, oldest first; those past the SLO behind the others.
    pub(crate) fn eligible(
        &self,
        replica: ReplicaIndex,
    ) -> impl Iterator<Item = (QueueSeq, &QueuedRequest)> + '_ {
        let past_slo = self.last_past_slo();
        let past_slo = past_slo.map(|last| self.between(replica, QueueSeq::FIRST, last));
        self.within_slo(replica)
            .chain(past_slo.into_iter().flatten())
    }

    /// The last position of a request past the SLO, if there may be one.
    fn last_past_slo(&self) -> Option<QueueSeq> {
        self.past_slo.0.checked_sub(1).map(QueueSeq)
    }

    /// The oldest request past the SLO with a long prompt that this replica may serve.
    pub(crate) fn long_prompt_past_slo(&self, replica: ReplicaIndex) -> Option<QueueSeq> {
        let last = self.last_past_slo()?;
        let mut long_prompts = self.long_prompts.between(replica, QueueSeq::FIRST, last);
        long_prompts.next()
    }

    /// The requests within the SLO that this replica may serve, oldest first.
    pub(crate) fn within_slo(
        &self,
        replica: ReplicaIndex,
    ) -> impl Iterator<Item = (QueueSeq, &QueuedRequest)> + '_ {
        self.between(replica, self.past_slo, QueueSeq::LAST)
    }

    /// The requests between two positions that this replica may serve, oldest first.
    fn between(
        &self,
        replica: ReplicaIndex,
        from: QueueSeq,
        to: QueueSeq,
    ) -> impl Iterator<Item = (QueueSeq, &QueuedRequest)> + '_ {
        let seqs = self.eligible.between(replica, from, to);
        seqs.filter_map(|seq| Some((seq, self.queued.get(&seq)?)))
    }

    /// The requests behind `after` whose affinity replica this one is, in the order of [`Self::eligible`].
    pub(crate) fn with_affinity(
        &self,
        replica: ReplicaIndex,
        after: QueueSeq,
    ) -> impl Iterator<Item = (QueueSeq, &QueuedRequest)> + '_ {
        let is_past_slo = after < self.past_slo;
        let last = if is_past_slo {
            QueueSeq(self.past_slo.0.saturating_sub(1))
        } else {
            QueueSeq::LAST
        };
        self.by_affinity
            .range((replica, after.next())..=(replica, last.max(after.next())))
            .filter_map(|(_, seq)| Some((*seq, self.queued.get(seq)?)))
    }

    /// Counts an overtake for each of the first older requests that the replica could have served and that would have taken it.
    pub(crate) fn count_overtakes(
        &mut self,
        seq: QueueSeq,
        replica: ReplicaIndex,
        at_most: usize,
        overtakes_max: u32,
        would_take: impl Fn(&QueuedRequest) -> bool,
    ) {
        let older: SmallVec<[QueueSeq; 64]> = self
            .within_slo(replica)
            .take_while(|(older, _)| *older < seq)
            .take(at_most)
            .filter(|(_, queued)| would_take(queued))
            .map(|(older, _)| older)
            .collect();
        for older in older {
            if let Some(queued) = self.queued.get_mut(&older) {
                queued.overtaken = queued.overtaken.saturating_add(1);
                if queued.overtaken >= overtakes_max {
                    let pinned = queued.pinned.as_deref();
                    self.at_overtake_limit.insert(older, pinned);
                }
            }
        }
    }

    /// The oldest request that must not be overtaken on this replica any more.
    pub(crate) fn at_overtake_limit(&self, replica: ReplicaIndex) -> Option<QueueSeq> {
        let mut at_limit = self
            .at_overtake_limit
            .between(replica, self.past_slo, QueueSeq::LAST);
        at_limit.next()
    }

    /// Removes a replica from up to so many restrictions; returns the requests that no replica may serve now.
    pub(crate) fn unpin(&mut self, replica: ReplicaIndex, at_most: usize) -> Vec<QueueSeq> {
        let seqs = self.eligible.pinned_to(replica, at_most);
        let mut unroutable = Vec::new();
        for seq in seqs {
            self.eligible.unpin(seq, replica);
            self.at_overtake_limit.unpin(seq, replica);
            self.long_prompts.unpin(seq, replica);
            if let Some(queued) = self.queued.get_mut(&seq)
                && let Some(replicas) = &mut queued.pinned
            {
                *replicas = replicas.iter().copied().filter(|s| *s != replica).collect();
                if replicas.is_empty() {
                    unroutable.push(seq);
                }
            }
        }
        unroutable
    }

    #[cfg(test)]
    fn order(&self) -> Vec<u64> {
        self.queued.values().map(|w| w.request.id.0).collect()
    }
}

/// The peers that a request has returned from, if it may be forwarded.
fn tried_of(request: &Request) -> Option<TriedPeers> {
    let mut tried = TriedPeers::from_slice(request.tried()?);
    tried.sort_unstable();
    tried.dedup();
    Some(tried)
}

impl QueueSeq {
    /// In front of all requests.
    pub(crate) const FIRST: Self = Self(0);

    /// Behind all requests.
    pub(crate) const LAST: Self = Self(u64::MAX);

    /// The position behind this one.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scope, Tier};
    use isotherm_fingerprint::Fingerprint;
    use std::sync::Arc;

    fn queued(id: u64, pinned: Option<&[u16]>) -> QueuedRequest {
        QueuedRequest {
            seq: QueueSeq(id),
            request: Request {
                id: RequestId(id),
                fingerprint: Arc::new(Fingerprint::default()),
                session: None,
                tier: Tier::default(),
                prompt_tokens: 0,
                output_tokens_max: None,
                subset: None,
                adapter: None,
                scope: Scope::default(),
            },
            arrived: Time::from_nanos(id),
            has_returned: false,
            is_long_prompt: false,
            overtaken: 0,
            pinned: pinned.map(|slots| slots.iter().map(|s| ReplicaIndex(*s)).collect()),
            preferred: None,
            delayed_since: None,
            affinity: None,
            known: Cell::default(),
            estimated_tokens: 0,
        }
    }

    fn eligible(queue: &Queue, slot: u16) -> Vec<u64> {
        queue
            .eligible(ReplicaIndex(slot))
            .map(|(_, w)| w.request.id.0)
            .collect()
    }

    #[test]
    fn each_replica_sees_the_requests_that_it_may_serve_in_order_of_arrival() {
        let mut queue = Queue::default();
        queue.push(queued(1, Some(&[7])));
        queue.push(queued(2, None));
        queue.push(queued(3, Some(&[7, 8])));
        queue.push(queued(4, None));
        assert_eq!(eligible(&queue, 7), [1, 2, 3, 4]);
        assert_eq!(eligible(&queue, 8), [2, 3, 4]);
        assert_eq!(eligible(&queue, 9), [2, 4]);
    }

    #[test]
    fn a_removed_request_leaves_every_index() {
        let mut queue = Queue::default();
        for id in 1..=3 {
            queue.push(queued(id, (id == 2).then_some(&[7_u16, 8][..])));
        }
        let seq = queue.seq_of(RequestId(2)).unwrap();
        assert!(queue.remove(seq).is_some());
        assert!(queue.remove(seq).is_none());
        assert_eq!(queue.pins(), 0);
        assert_eq!(queue.order(), [1, 3]);
    }

    #[test]
    fn a_removed_replica_leaves_only_requests_without_another_unroutable() {
        let mut queue = Queue::default();
        queue.push(queued(1, Some(&[7])));
        queue.push(queued(2, Some(&[7, 8])));
        let unroutable = queue.unpin(ReplicaIndex(7), 64);
        assert_eq!(unroutable, [queue.seq_of(RequestId(1)).unwrap()]);
        assert_eq!(eligible(&queue, 8), [2]);
    }

    #[test]
    fn requests_past_the_slo_are_marked_a_bounded_number_at_a_time() {
        let mut queue = Queue::default();
        for id in 1..=10 {
            queue.push(queued(id, None));
        }
        let (now, slo) = (Time::from_nanos(8), Duration::ZERO);
        let first = |queue: &Queue| queue.first_in_order().map(|seq| seq.0);
        assert_eq!(first(&queue), Some(1));
        queue.mark_past_slo(now, slo, 5);
        assert_eq!(first(&queue), Some(6));
        queue.mark_past_slo(now, slo, 5);
        assert_eq!(first(&queue), Some(9), "9 and 10 are within it");
    }

    #[test]
    fn only_older_requests_are_overtaken() {
        let mut queue = Queue::default();
        let seqs: Vec<QueueSeq> = (1..=4).map(|id| queue.push(queued(id, None))).collect();
        queue.count_overtakes(seqs[2], ReplicaIndex(0), 64, 64, |_| true);
        let counts: Vec<u32> = queue.queued.values().map(|w| w.overtaken).collect();
        assert_eq!(counts, [1, 1, 0, 0]);
    }
}
