//! The order of service, as the line and the window of the tenants show it.

use core::iter;

use super::line::Spans;
use super::line_set::TenantWindow;
use super::{LinePlace, LineRules, Queue, QueueSeq, QueuedRequest};
use crate::replica_index::ReplicaIndex;
use crate::tenants::{Charge, TenantSlot};

/// Limit of the hidden requests that one search walks over.
const HIDDEN_MAX: usize = 256;

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

    /// The requests of [`Self::eligible`] and those of tenants that the window hides.
    pub(crate) fn eligible_of_all_tenants(
        &self,
        replica: ReplicaIndex,
    ) -> impl Iterator<Item = (QueueSeq, &QueuedRequest)> + '_ {
        let window = self.eligible.window(Some(replica), Charge::MAX);
        let spans = self.rules.spans(self.now).into_iter();
        let positions = spans.flat_map(move |span| {
            self.eligible
                .positions(Some(replica), &span, window.as_ref())
        });
        self.with_requests(positions)
    }

    /// Whether the window of the tenants may hide requests: two tenants have different charges.
    pub(crate) fn hides_tenants(&self) -> bool {
        let charges = self.eligible.charges().filter(|_| self.is_fair);
        charges.is_some_and(|(least, most)| least < most)
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
        let mut long = long_prompts.positions(Some(replica), &late, None);
        let window = self.eligible.window(Some(replica), self.quantum);
        self.first_shown(&mut long, window.as_ref())
    }

    /// The requests behind `after` whose affinity replica this one is, in the order of [`Self::eligible`] and up to the end of the
    /// span: late ones that come last are not mixed with the others.
    pub(crate) fn with_affinity(
        &self,
        replica: ReplicaIndex,
        after: LinePlace,
    ) -> impl Iterator<Item = (QueueSeq, &QueuedRequest)> + '_ {
        let window = self.eligible.window(Some(replica), self.quantum);
        let span = self.rules.behind(after, self.now).into_iter().next();
        let ranges = span.map(|span| (span.ranges(), span.comparison()));
        let ranges = ranges.map(|(mut ranges, is_in_front)| {
            let mut of_replica = || {
                let (from, to) = ranges.next()?;
                let range = self.by_affinity.range((replica, from)..=(replica, to));
                Some(range.map(|((_, place), tenant)| (place, *tenant)))
            };
            let [first, second] = [of_replica(), of_replica()];
            let [first, second] = [first, second].map(|range| range.into_iter().flatten());
            itertools::Itertools::merge_by(first, second, move |(a, _), (b, _)| is_in_front(a, b))
        });
        let most = if self.is_fair { HIDDEN_MAX } else { usize::MAX };
        let positions = ranges.into_iter().flatten().take(most);
        let shown = positions.filter(move |(_, tenant)| self.is_shown(*tenant, window.as_ref()));
        self.with_requests(shown.map(|(place, _)| *place))
    }

    /// The first request at the overtake limit, in the order of service, that this replica may serve.
    pub(crate) fn at_overtake_limit(&self, replica: ReplicaIndex) -> Option<QueueSeq> {
        if self.at_overtake_limit.is_empty() {
            return None;
        }
        let window = self.eligible.window(Some(replica), self.quantum);
        let spans = self.rules.in_time(self.now);
        let mut at_limit = spans
            .into_iter()
            .flat_map(|span| self.at_overtake_limit.positions(Some(replica), &span, None));
        self.first_shown(&mut at_limit, window.as_ref())
    }

    /// The waiting requests of some spans that the tenants' window shows; with `replica`, only requests that it may serve.
    fn line(
        &self,
        replica: Option<ReplicaIndex>,
        spans: Spans,
    ) -> impl Iterator<Item = LinePlace> + use<'_> {
        let window = self.eligible.window(replica, self.quantum);
        spans
            .into_iter()
            .flat_map(move |span| self.eligible.positions(replica, &span, window.as_ref()))
    }

    pub(super) fn with_requests(
        &self,
        positions: impl Iterator<Item = LinePlace>,
    ) -> impl Iterator<Item = (QueueSeq, &QueuedRequest)> {
        positions.filter_map(|place| Some((place.seq(), self.get(place.seq())?)))
    }

    /// The first of these requests that the tenants' window shows.
    fn first_shown(
        &self,
        positions: &mut dyn Iterator<Item = LinePlace>,
        window: Option<&TenantWindow>,
    ) -> Option<QueueSeq> {
        let mut few = iter::zip(positions, 0..HIDDEN_MAX);
        let shown = few.find(|(place, _)| {
            let queued = self.get(place.seq());
            queued.is_some_and(|queued| self.is_shown(queued.tenant, window))
        });
        shown.map(|(place, _)| place.seq())
    }

    fn is_shown(&self, tenant: TenantSlot, window: Option<&TenantWindow>) -> bool {
        window.is_none_or(|window| {
            let charge = self.eligible.charge_of(tenant);
            window.admits(charge.unwrap_or(Charge::MAX))
        })
    }
}
