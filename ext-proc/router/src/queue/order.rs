//! The order of service, as the line shows it.

use super::line::Span;
use super::{LinePlace, Queue, QueueSeq, QueuedRequest};
use crate::replica_index::ReplicaIndex;

impl Queue {
    /// Whether a request is past its due time, and comes behind the others.
    pub(crate) fn is_late(&self, queued: &QueuedRequest) -> bool {
        self.rules.is_late(queued.place, self.now)
    }

    /// The waiting requests that one of these replicas may serve, in the order of service.
    pub(crate) fn eligible(&self, replicas: &[ReplicaIndex]) -> impl Iterator<Item = QueueSeq> {
        let spans = self.rules.spans(self.now).into_iter();
        let positions = |span: Span| self.eligible.positions(replicas, &span);
        spans.flat_map(positions).map(LinePlace::seq)
    }

    /// The requests of [`Self::eligible`] that wait for one of these replicas, or for any.
    pub(crate) fn open_to(&self, replicas: &[ReplicaIndex]) -> impl Iterator<Item = QueueSeq> {
        let spans = self.rules.spans(self.now).into_iter();
        let positions = |span: Span| {
            let own = replicas
                .iter()
                .filter_map(|replica| self.delayed.get(replica));
            span.merged(&mut self.undecided.sets(replicas).chain(own))
        };
        spans.flat_map(positions).map(LinePlace::seq)
    }

    /// Whether a replica may serve any waiting request.
    pub(crate) fn has_eligible(&self, replica: ReplicaIndex) -> bool {
        self.eligible.has_for(replica)
    }

    /// The first late request with a long prompt that one of these replicas may serve.
    pub(crate) fn long_prompt_past_slo(&self, replicas: &[ReplicaIndex]) -> Option<QueueSeq> {
        let long_prompts = &self.long_prompts;
        if long_prompts.is_empty() {
            return None;
        }
        let late = self.rules.late(self.now)?;
        let mut long = long_prompts.positions(replicas, &late);
        long.next().map(LinePlace::seq)
    }
}
