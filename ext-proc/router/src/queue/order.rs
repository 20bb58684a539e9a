//! The order of service, as the line shows it.

use itertools::Itertools;

use super::line::Spans;
use super::{LinePlace, LineRules, Queue, QueueSeq, QueuedRequest};
use crate::replica_index::ReplicaIndex;

impl Queue {
    pub(crate) const fn rules(&self) -> &LineRules {
        &self.rules
    }

    /// Whether a request is past its due time, and comes behind the others.
    pub(crate) fn is_late(&self, queued: &QueuedRequest) -> bool {
        self.rules.is_late(queued.place, self.now)
    }

    /// The first waiting request in the order of service.
    pub(crate) fn first_in_order(&self) -> Option<LinePlace> {
        let spans = self.rules.spans(self.now);
        self.line(None, spans).next()
    }

    /// The waiting request behind this position in the order of service.
    pub(crate) fn next_in_order(&self, place: LinePlace) -> Option<LinePlace> {
        let spans = self.rules.behind(place, self.now);
        self.line(None, spans).next()
    }

    /// The waiting requests that this replica may serve, in the order of service.
    pub(crate) fn eligible(
        &self,
        replica: ReplicaIndex,
    ) -> impl Iterator<Item = (QueueSeq, &QueuedRequest)> + '_ {
        let spans = self.rules.spans(self.now);
        self.with_requests(self.line(Some(replica), spans))
    }

    /// Whether a replica may serve any waiting request.
    pub(crate) fn has_eligible(&self, replica: ReplicaIndex) -> bool {
        self.eligible.has_for(replica)
    }

    /// The requests of [`Self::eligible`], without late ones if the order puts late requests last.
    pub(crate) fn within_slo(
        &self,
        replica: ReplicaIndex,
    ) -> impl Iterator<Item = (QueueSeq, &QueuedRequest)> + '_ {
        let spans = self.rules.in_time(self.now);
        self.with_requests(self.line(Some(replica), spans))
    }

    /// The first late request with a long prompt that this replica may serve.
    pub(crate) fn long_prompt_past_slo(&self, replica: ReplicaIndex) -> Option<QueueSeq> {
        let long_prompts = &self.long_prompts;
        if long_prompts.is_empty() {
            return None;
        }
        let late = self.rules.late(self.now)?;
        let mut long = long_prompts.positions(Some(replica), &late);
        long.next().map(LinePlace::seq)
    }

    /// The requests behind `after` whose affinity replica this one is, in the order of [`Self::eligible`] and up to the end of the
    /// span: late ones that come last are not mixed with the others.
    pub(crate) fn with_affinity(
        &self,
        replica: ReplicaIndex,
        after: LinePlace,
    ) -> impl Iterator<Item = (QueueSeq, &QueuedRequest)> + '_ {
        let span = self.rules.behind(after, self.now).into_iter().next();
        let positions = span.map(|span| {
            let [first, second] = span.ranges().map(|range| {
                let (from, to) = range?;
                let range = self.by_affinity.range((replica, from)..=(replica, to));
                Some(range.map(|(_, place)| place))
            });
            let [first, second] = [first, second].map(|range| range.into_iter().flatten());
            first.merge_by(second, span.comparison())
        });
        self.with_requests(positions.into_iter().flatten().copied())
    }

    /// The first request at the overtake limit, in the order of service, that this replica may serve.
    pub(crate) fn at_overtake_limit(&self, replica: ReplicaIndex) -> Option<QueueSeq> {
        if self.at_overtake_limit.is_empty() {
            return None;
        }
        let spans = self.rules.in_time(self.now);
        let mut at_limit = spans
            .into_iter()
            .flat_map(|span| self.at_overtake_limit.positions(Some(replica), &span));
        at_limit.next().map(LinePlace::seq)
    }

    /// The waiting requests of some spans; with `replica`, only requests that it may serve.
    fn line(
        &self,
        replica: Option<ReplicaIndex>,
        spans: Spans,
    ) -> impl Iterator<Item = LinePlace> + use<'_> {
        spans
            .into_iter()
            .flat_map(move |span| self.eligible.positions(replica, &span))
    }

    pub(super) fn with_requests(
        &self,
        positions: impl Iterator<Item = LinePlace>,
    ) -> impl Iterator<Item = (QueueSeq, &QueuedRequest)> {
        positions.filter_map(|place| Some((place.seq(), self.get(place.seq())?)))
    }
}
