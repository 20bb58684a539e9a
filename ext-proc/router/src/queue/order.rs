//! The order of service: oldest first, requests past the SLO behind the others.

use core::time::Duration;

use super::{Queue, QueueSeq, QueuedRequest};
use crate::Time;
use crate::replica_index::ReplicaIndex;

impl Queue {
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

    /// The oldest request that must not be overtaken on this replica any more.
    pub(crate) fn at_overtake_limit(&self, replica: ReplicaIndex) -> Option<QueueSeq> {
        let mut at_limit = self
            .at_overtake_limit
            .between(replica, self.past_slo, QueueSeq::LAST);
        at_limit.next()
    }
}
