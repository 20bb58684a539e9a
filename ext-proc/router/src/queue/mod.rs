//! The queue of requests that wait for a replica, in order of arrival (`docs/design/queue.md`).
//!
//! A request that the gateway or its adapter restricts to some replicas is indexed under each of them, so that it neither blocks the others
//! nor has to be searched. A request that may be forwarded is indexed under the set of peers that it returned from, which is
//! nearly always the empty set. Each operation costs the logarithm of the queue's length.

mod eligible;
mod order;
mod preferred;
mod request;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use self::eligible::EligibleSet;
pub(crate) use self::request::{QueueSeq, QueuedRequest, WaitTimes};
use crate::replica_index::ReplicaIndex;
use crate::{PeerId, Request, RequestId, Time};

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

#[cfg(test)]
mod tests {
    use core::cell::Cell;

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
                ttft_slo: None,
                deadline: None,
                prompt_tokens: 0,
                output_tokens_max: None,
                subset: None,
                adapter: None,
                scope: Scope::default(),
                tenant: crate::TenantId::default(),
                tells_start: false,
            },
            arrived: Time::from_nanos(id),
            tenant: crate::tenants::TenantSlot::UNTRACKED,
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
