//! Requests that wait here for a replica (selective pushing, SkyLB 3.3), oldest first.
//!
//! Order of arrival is the order of everything: of service where the policy does not choose otherwise, and of
//! deadlines, since all wait equally long at most. So the oldest one is at once the next one to serve and the
//! next one to expire, and each operation costs the logarithm of the queue's length.
//!
//! Requests that a gateway restricts to some replicas stand in a line for each of those besides, so that they
//! neither hold up the others nor have to be searched for when one of their replicas is free. Requests that may leave for
//! a peer region stand in a line for each set of peers that they have come back from: nearly all in that of the empty
//! set.

use core::cell::Cell;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::index::PrefixMatch;
use crate::replica_index::ReplicaIndex;
use crate::{PeerId, Request, RequestId, Time};

/// How often a waiting request may see a later one go first to a replica that could have served it, unless the policy has
/// more patience.
pub(crate) const OVERTAKES_MAX: u32 = 64;

/// A request's place: where it stands in the order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueSeq(u64);

/// A request that waits.
#[derive(Clone, Debug)]
pub(crate) struct QueuedRequest {
    pub(crate) seq: QueueSeq,
    pub(crate) request: Request,
    pub(crate) arrived: Time,
    /// How many later ones went first.
    pub(crate) overtaken: u32,
    /// The only replicas that may serve it, where the gateway restricts them.
    pub(crate) pinned: Option<Box<[ReplicaIndex]>>,
    /// The replica that it waits for, although others may be free.
    pub(crate) preferred: Option<ReplicaIndex>,
    /// Since when it waits for one although others are free.
    pub(crate) delayed_since: Option<Time>,
    /// The longest prefix of its prompt that anybody had when this was last asked: where to look first the next time. Those
    /// that wait are asked about again and again, and only looked at meanwhile.
    pub(crate) known: Cell<PrefixMatch>,
}

/// The peers that a request has come back from, in order of identity.
type Tried = SmallVec<[PeerId; 2]>;

/// Requests that wait.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    queued: BTreeMap<QueueSeq, QueuedRequest>,
    seqs: BTreeMap<RequestId, QueueSeq>,
    /// Those that any replica may serve.
    open: BTreeSet<QueueSeq>,
    /// The others, under each replica that may serve them.
    pinned: BTreeSet<(ReplicaIndex, QueueSeq)>,
    /// Those that must not be passed over any more.
    at_overtake_limit: BTreeSet<QueueSeq>,
    /// Those that may leave for a peer region, by the peers that they have come back from.
    leaving: BTreeMap<Tried, BTreeSet<QueueSeq>>,
    /// How many wait for each replica in particular.
    preferred_counts: BTreeMap<ReplicaIndex, usize>,
    /// Those in front of this have waited so long that others go first.
    past_slo: QueueSeq,
    next: u64,
}

impl Queue {
    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.queued.len()
    }

    /// Whether any of them is restricted to some replicas.
    pub(crate) fn has_pinned(&self) -> bool {
        !self.pinned.is_empty()
    }

    pub(crate) fn contains(&self, id: RequestId) -> bool {
        self.seqs.contains_key(&id)
    }

    /// The place behind everybody that has had one.
    pub(crate) fn next_seq(&mut self) -> QueueSeq {
        let seq = QueueSeq(self.next);
        self.next += 1;
        seq
    }

    /// Whether somebody waits for one replica in particular.
    pub(crate) fn has_preferences(&self) -> bool {
        !self.preferred_counts.is_empty()
    }

    /// How many wait for this replica in particular.
    pub(crate) fn preferring(&self, slot: ReplicaIndex) -> usize {
        self.preferred_counts
            .get(&slot)
            .copied()
            .unwrap_or_default()
    }

    /// A request waits for this replica in particular from now on, or for any.
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

    /// This replica leaves: those that waited for it wait for any; says whether there were some.
    pub(crate) fn forget_preferred(&mut self, slot: ReplicaIndex) -> bool {
        if self.preferred_counts.remove(&slot).is_none() {
            return false;
        }
        for queued in self.queued.values_mut() {
            if queued.preferred == Some(slot) {
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
        if let Some(slot) = before
            && let Some(count) = self.preferred_counts.get_mut(&slot)
        {
            *count -= 1;
            if *count == 0 {
                self.preferred_counts.remove(&slot);
            }
        }
        if let Some(slot) = after {
            *self.preferred_counts.entry(slot).or_default() += 1;
        }
    }

    /// Puts a request at its place: at the end, unless it has been away.
    pub(crate) fn push(&mut self, queued: QueuedRequest) -> QueueSeq {
        let seq = queued.seq;
        self.count_preferred(None, queued.preferred);
        self.seqs.insert(queued.request.id, seq);
        if let Some(tried) = tried_of(&queued.request) {
            self.leaving.entry(tried).or_default().insert(seq);
        }
        match &queued.pinned {
            None => {
                self.open.insert(seq);
            }
            Some(slots) => self.pinned.extend(slots.iter().map(|slot| (*slot, seq))),
        }
        self.queued.insert(seq, queued);
        seq
    }

    /// All of them, oldest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &QueuedRequest> + '_ {
        self.queued.values()
    }

    pub(crate) fn get(&self, seq: QueueSeq) -> Option<&QueuedRequest> {
        self.queued.get(&seq)
    }

    /// Whether a request waits that this replica may serve.
    pub(crate) fn may_go(&self, seq: QueueSeq, slot: ReplicaIndex) -> bool {
        self.get(seq).is_some_and(|queued| {
            let pinned = queued.pinned.as_deref();
            pinned.is_none_or(|slots| slots.contains(&slot))
        })
    }

    pub(crate) fn seq_of(&self, id: RequestId) -> Option<QueueSeq> {
        self.seqs.get(&id).copied()
    }

    /// Takes a request out, wherever it stands.
    pub(crate) fn remove(&mut self, seq: QueueSeq) -> Option<QueuedRequest> {
        let queued = self.queued.remove(&seq)?;
        self.count_preferred(queued.preferred, None);
        self.seqs.remove(&queued.request.id);
        self.open.remove(&seq);
        self.at_overtake_limit.remove(&seq);
        for slot in queued.pinned.iter().flatten() {
            self.pinned.remove(&(*slot, seq));
        }
        if let Some(tried) = tried_of(&queued.request)
            && let Some(line) = self.leaving.get_mut(&tried)
        {
            line.remove(&seq);
            if line.is_empty() {
                self.leaving.remove(&tried);
            }
        }
        Some(queued)
    }

    /// The oldest one.
    pub(crate) fn oldest(&self) -> Option<(QueueSeq, &QueuedRequest)> {
        self.queued.first_key_value().map(|(p, w)| (*p, w))
    }

    /// The oldest one when it has waited for this long.
    pub(crate) fn expired(&self, now: Time, wait_max: Duration) -> Option<QueueSeq> {
        self.oldest()
            .filter(|(_, queued)| queued.arrived.after(wait_max) <= now)
            .map(|(seq, _)| seq)
    }

    /// The oldest one that may leave for a peer region, when there is one for those that have come back from these.
    pub(crate) fn oldest_leaving(
        &self,
        is_open_to: impl Fn(&[PeerId]) -> bool,
    ) -> Option<QueueSeq> {
        self.leaving
            .iter()
            .filter(|(tried, _)| is_open_to(tried))
            .filter_map(|(_, line)| line.first().copied())
            .min()
    }

    /// Those that have waited for this long come behind the others from now on, and may be passed over without bound.
    pub(crate) fn mark_past_slo(&mut self, now: Time, after: Duration) {
        while let Some((seq, queued)) = self.queued.range(self.past_slo..).next() {
            if queued.arrived.after(after) > now {
                return;
            }
            self.past_slo = QueueSeq(seq.0.saturating_add(1));
        }
    }

    /// Nobody is late any more, by other rules.
    pub(crate) const fn clear_past_slo(&mut self) {
        self.past_slo = QueueSeq::FIRST;
    }

    /// Those that this replica may serve, oldest first; the late ones behind the others.
    pub(crate) fn eligible(
        &self,
        slot: ReplicaIndex,
    ) -> impl Iterator<Item = (QueueSeq, &QueuedRequest)> + '_ {
        let past_slo = QueueSeq(self.past_slo.0.saturating_sub(1));
        let past_slo = (self.past_slo > QueueSeq::FIRST)
            .then(|| self.between(slot, QueueSeq::FIRST, past_slo));
        self.within_slo(slot).chain(past_slo.into_iter().flatten())
    }

    /// Those of them that are not late.
    pub(crate) fn within_slo(
        &self,
        slot: ReplicaIndex,
    ) -> impl Iterator<Item = (QueueSeq, &QueuedRequest)> + '_ {
        self.between(slot, self.past_slo, QueueSeq::LAST)
    }

    /// Those that this replica may serve from one place to another, oldest first.
    fn between(
        &self,
        slot: ReplicaIndex,
        from: QueueSeq,
        to: QueueSeq,
    ) -> impl Iterator<Item = (QueueSeq, &QueuedRequest)> + '_ {
        let mut open = self.open.range(from..=to).copied().peekable();
        let mut pinned = self
            .pinned
            .range((slot, from)..=(slot, to))
            .map(|(_, seq)| *seq)
            .peekable();
        core::iter::from_fn(move || {
            let seq = match (open.peek(), pinned.peek()) {
                (Some(a), Some(b)) if a < b => open.next(),
                (_, Some(_)) => pinned.next(),
                (_, None) => open.next(),
            }?;
            Some((seq, self.queued.get(&seq)?))
        })
    }

    /// Counts one more that went first for each older one that the replica could have served. With so many it must not be
    /// passed over any more.
    pub(crate) fn count_overtakes(
        &mut self,
        seq: QueueSeq,
        slot: ReplicaIndex,
        at_most: usize,
        max_overtakes: u32,
    ) {
        let older: Vec<QueueSeq> = self
            .within_slo(slot)
            .map(|(older, _)| older)
            .take_while(|older| *older < seq)
            .take(at_most)
            .collect();
        for older in older {
            if let Some(queued) = self.queued.get_mut(&older) {
                queued.overtaken = queued.overtaken.saturating_add(1);
                if queued.overtaken >= max_overtakes {
                    self.at_overtake_limit.insert(older);
                }
            }
        }
    }

    /// The oldest one that must not be passed over on this replica any more.
    pub(crate) fn at_overtake_limit(&self, slot: ReplicaIndex) -> Option<QueueSeq> {
        let mut at_overtake_limit = self.at_overtake_limit.range(self.past_slo..).copied();
        at_overtake_limit.find(|seq| self.may_go(*seq, slot))
    }

    /// A replica takes no new requests any more: those restricted to it alone are returned, with nowhere to go.
    pub(crate) fn unpin(&mut self, slot: ReplicaIndex) -> Vec<QueueSeq> {
        let seqs: Vec<QueueSeq> = self
            .pinned
            .range((slot, QueueSeq::FIRST)..=(slot, QueueSeq::LAST))
            .map(|(_, seq)| *seq)
            .collect();
        let mut unroutable = Vec::new();
        for seq in seqs {
            self.pinned.remove(&(slot, seq));
            if let Some(queued) = self.queued.get_mut(&seq)
                && let Some(slots) = &mut queued.pinned
            {
                *slots = slots.iter().copied().filter(|s| *s != slot).collect();
                if slots.is_empty() {
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

/// The line in which a request stands that may leave the region.
fn tried_of(request: &Request) -> Option<Tried> {
    let mut tried = Tried::from_slice(request.tried()?);
    tried.sort_unstable();
    tried.dedup();
    Some(tried)
}

impl QueueSeq {
    /// In front of everybody.
    pub(crate) const FIRST: Self = Self(0);

    /// Behind everybody.
    pub(crate) const LAST: Self = Self(u64::MAX);
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
                scope: Scope::default(),
            },
            arrived: Time::from_nanos(id),
            overtaken: 0,
            pinned: pinned.map(|slots| slots.iter().map(|s| ReplicaIndex(*s)).collect()),
            preferred: None,
            delayed_since: None,
            known: Cell::default(),
        }
    }

    fn eligible(queue: &Queue, slot: u16) -> Vec<u64> {
        queue
            .eligible(ReplicaIndex(slot))
            .map(|(_, w)| w.request.id.0)
            .collect()
    }

    #[test]
    fn each_replica_sees_those_it_may_serve_in_order_of_arrival() {
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
    fn whoever_leaves_leaves_everywhere() {
        let mut queue = Queue::default();
        for id in 1..=3 {
            queue.push(queued(id, (id == 2).then_some(&[7_u16, 8][..])));
        }
        let seq = queue.seq_of(RequestId(2)).unwrap();
        assert!(queue.remove(seq).is_some());
        assert!(queue.remove(seq).is_none());
        assert!(!queue.has_pinned());
        assert_eq!(queue.order(), [1, 3]);
    }

    #[test]
    fn a_replica_that_leaves_strands_only_those_with_no_other() {
        let mut queue = Queue::default();
        queue.push(queued(1, Some(&[7])));
        queue.push(queued(2, Some(&[7, 8])));
        let unroutable = queue.unpin(ReplicaIndex(7));
        assert_eq!(unroutable, [queue.seq_of(RequestId(1)).unwrap()]);
        assert_eq!(eligible(&queue, 8), [2]);
    }

    #[test]
    fn only_older_ones_are_passed_over() {
        let mut queue = Queue::default();
        let seqs: Vec<QueueSeq> = (1..=4).map(|id| queue.push(queued(id, None))).collect();
        queue.count_overtakes(seqs[2], ReplicaIndex(0), 64, 64);
        let counts: Vec<u32> = queue.queued.values().map(|w| w.overtaken).collect();
        assert_eq!(counts, [1, 1, 0, 0]);
    }
}
