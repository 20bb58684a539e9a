//! The queue of requests that wait for a replica, in the order of service (`docs/design/queue.md`).
//!
//! Requests that a user waits for are the first band, batch requests that the gate holds are the second one ([`held`]). In each
//! band a request has a fixed position, and [`mod@line`] defines the order in which positions are served: the *line*.
//!
//! A request that the gateway or its adapter restricts to some replicas is indexed under each of them, so that it neither blocks the
//! others nor has to be searched. Each operation costs the logarithm of the queue's length.

mod eligible;
mod forwardable;
mod held;
mod line;
mod order;
mod place;
mod preferred;
mod request;
mod requests;
mod tier_entries;

use std::collections::{BTreeMap, BTreeSet};

use self::eligible::EligibleSet;
use self::forwardable::ForwardableSet;
use self::held::HeldRequests;
pub(crate) use self::line::LineRules;

pub(crate) use self::place::LinePlace;
pub use self::place::QueueSeq;
pub use self::request::QueuedRequest;
pub(crate) use self::request::{Band, EnteredBy, QueueTurns};
use self::requests::Requests;
use self::tier_entries::TierEntries;
use crate::replica_index::ReplicaIndex;
use crate::{PeerId, RequestId, Time};

#[derive(Debug, Default)]
pub(crate) struct Queue {
    rules: LineRules,
    has_tiers: bool,
    /// Time of the last event, which decides the order of the line.
    now: Time,
    queued: Requests,
    seqs: BTreeMap<RequestId, QueueSeq>,
    /// All requests of the first band.
    eligible: EligibleSet,
    /// The requests of the first band that wait for no replica in particular.
    undecided: EligibleSet,
    /// The requests with long prompts.
    long_prompts: EligibleSet,
    /// The requests that wait for a particular replica, under that replica.
    delayed: BTreeMap<ReplicaIndex, BTreeSet<LinePlace>>,
    /// The number of requests that wait for a particular replica.
    delayed_len: usize,
    /// The requests that may be forwarded.
    forwardable: ForwardableSet,
    /// The second band.
    held: HeldRequests,
    /// All requests by tier, in a pool with tiers.
    entries: TierEntries,
    next: u64,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.queued.len()
    }

    /// Number of requests of the first band.
    pub(crate) fn waiting_len(&self) -> usize {
        self.len() - self.held_len()
    }

    /// Sets the time, which decides the order of the line.
    pub(crate) const fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// Replaces the rules. Rules that change positions insert all requests anew.
    pub(crate) fn set_rules(&mut self, rules: LineRules, has_tiers: bool) {
        let moves = rules.moves(&self.rules);
        self.rules = rules;
        if !moves && has_tiers == self.has_tiers {
            return;
        }
        self.has_tiers = has_tiers;
        let mut requests = core::mem::take(&mut self.queued);
        (self.eligible, self.held) = Default::default();
        (self.undecided, self.long_prompts) = Default::default();
        (self.forwardable, self.entries) = Default::default();
        (self.delayed, self.delayed_len) = Default::default();
        requests.for_each_by_arrival(|queued| self.enter_line(queued));
        self.queued = requests;
    }

    /// Whether any request is restricted to this replica among others.
    pub(crate) fn has_pinned_to(&self, replica: ReplicaIndex) -> bool {
        self.eligible.has_pinned_to(replica) || self.held.eligible.has_pinned_to(replica)
    }

    /// Number of pairs of a restricted request and a replica that may serve it.
    pub(crate) const fn pins(&self) -> usize {
        self.eligible.pins() + self.held.eligible.pins()
    }

    pub(crate) fn contains(&self, id: RequestId) -> bool {
        self.seqs.contains_key(&id)
    }

    /// A new position in the order of arrival, behind all earlier ones.
    pub(crate) const fn next_seq(&mut self) -> QueueSeq {
        let seq = QueueSeq(self.next);
        self.next += 1;
        seq
    }

    /// Inserts a request into its band at its position: the last one by arrival, unless the request returned from a peer.
    pub(crate) fn push(&mut self, mut queued: QueuedRequest) -> QueueSeq {
        let seq = queued.seq;
        self.seqs.insert(queued.request.id, seq);
        self.enter_line(&mut queued);
        self.queued.insert(queued);
        seq
    }

    /// Gives a request its position in the line of its band.
    fn enter_line(&mut self, queued: &mut QueuedRequest) {
        if self.has_tiers {
            self.entries.insert(queued);
        }
        if queued.band == Band::Held {
            queued.place = HeldRequests::place(queued);
            self.held.insert(queued);
        } else {
            queued.place = self.rules.place(queued);
            self.forwardable.insert(queued.seq, &queued.request);
            let (place, pinned) = (queued.place, queued.pinned.as_deref());
            self.eligible.insert(place, pinned);
            self.insert_by_preference(queued);
            if queued.is_long_prompt {
                self.long_prompts.insert(place, pinned);
            }
        }
    }

    /// All requests, oldest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &QueuedRequest> + '_ {
        self.queued.iter()
    }

    pub(crate) fn get(&self, seq: QueueSeq) -> Option<&QueuedRequest> {
        self.queued.get(seq)
    }

    pub(crate) fn seq_of(&self, id: RequestId) -> Option<QueueSeq> {
        self.seqs.get(&id).copied()
    }

    pub(crate) fn remove(&mut self, seq: QueueSeq) -> Option<QueuedRequest> {
        let queued = self.queued.remove(seq)?;
        self.seqs.remove(&queued.request.id);
        if self.has_tiers {
            self.entries.remove(&queued);
        }
        if queued.band == Band::Held {
            self.held.remove(&queued);
            return Some(queued);
        }
        self.remove_by_preference(&queued);
        let (place, pinned) = (queued.place, queued.pinned.as_deref());
        self.eligible.remove(place, pinned);
        self.long_prompts.remove(place, pinned);
        self.forwardable.remove(seq, &queued.request);
        Some(queued)
    }

    /// Counts a later request that a freed replica took instead of this one.
    pub(crate) fn count_overtake(&mut self, seq: QueueSeq) {
        if let Some(queued) = self.queued.get_mut(seq) {
            let overtaken = &mut queued.turns.overtaken;
            *overtaken = overtaken.saturating_add(1);
        }
    }

    /// The oldest request of both bands.
    pub(crate) fn oldest(&self) -> Option<&QueuedRequest> {
        self.queued.iter().next()
    }

    /// The oldest request of the first band at or behind `from` that may be forwarded; `is_open_to` says whether a peer is left
    /// for a set of tried ones.
    pub(crate) fn next_forwardable(
        &self,
        from: QueueSeq,
        is_open_to: impl Fn(&[PeerId]) -> bool,
    ) -> Option<QueueSeq> {
        self.forwardable.next(from, is_open_to)
    }

    /// The number of requests of the first band between two positions in the order of arrival, at most `at_most`.
    pub(crate) fn count_between(&self, from: QueueSeq, to: QueueSeq, at_most: usize) -> usize {
        if from >= to {
            return 0;
        }
        let between = self.queued.range(from..to).take(at_most);
        between
            .filter(|queued| queued.band == Band::Waiting)
            .count()
    }

    /// Removes a replica from at most `at_most` restrictions; returns the requests that no replica may serve any more.
    pub(crate) fn unpin(&mut self, replica: ReplicaIndex, at_most: usize) -> Vec<QueueSeq> {
        let mut places = self.eligible.pinned_to(replica, at_most);
        let left = at_most - places.len();
        places.extend(self.held.eligible.pinned_to(replica, left));
        let mut unroutable = Vec::new();
        for place in places {
            let seq = place.seq();
            let Some(queued) = self.queued.get_mut(seq) else {
                continue;
            };
            if queued.band == Band::Held {
                self.held.eligible.unpin(place, replica);
            } else {
                self.eligible.unpin(place, replica);
                self.undecided.unpin(place, replica);
                self.long_prompts.unpin(place, replica);
            }
            if let Some(replicas) = &mut queued.pinned {
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
        self.queued.iter().map(|w| w.request.id.0).collect()
    }
}

#[cfg(test)]
mod line_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenants::{TenantCharge, TenantSlot};
    use crate::{Request, Scope, Tier};
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
                previous_response: None,
                subset: None,
                adapter: None,
                scope: Scope::default(),
                tenant: crate::TenantId::default(),
                tells_start: false,
                api: None,
                wants_stream: false,
            },
            arrived: Time::from_nanos(id),
            entered: Time::from_nanos(id),
            place: LinePlace::LAST,
            band: Band::Waiting,
            charge: TenantCharge {
                slot: TenantSlot::UNTRACKED,
                tokens: 0,
            },
            entered_by: EnteredBy::Arrived,
            is_long_prompt: false,
            turns: QueueTurns::default(),
            pinned: pinned.map(|slots| slots.iter().map(|s| ReplicaIndex(*s)).collect()),
            preferred: None,
            delayed_since: None,
            estimated_tokens: 0,
        }
    }

    fn eligible(queue: &Queue, slot: u16) -> Vec<u64> {
        queue
            .eligible(&[ReplicaIndex(slot)])
            .map(|seq| queue.get(seq).unwrap().request.id.0)
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
    fn late_requests_come_behind_the_others() {
        let config = crate::config::PoolConfig {
            ttft_slo: core::time::Duration::ZERO,
            ..crate::config::PoolConfig::default()
        };
        let mut queue = Queue::default();
        queue.set_rules(LineRules::new(&config, true), false);
        for id in 1..=10 {
            queue.push(queued(id, None));
        }
        let first = |queue: &Queue| eligible(queue, 0).first().copied();
        assert_eq!(first(&queue), Some(1));
        queue.set_now(Time::from_nanos(8));
        assert_eq!(first(&queue), Some(9), "9 and 10 are within it");
        let order = [9, 10, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(eligible(&queue, 0), order);
        queue.set_now(Time::from_nanos(100));
        assert_eq!(first(&queue), Some(1));
    }
}
