//! Requests that wait for a particular replica, although others may be free (delay scheduling).

use super::{Queue, QueueSeq};
use crate::Time;
use crate::replica_index::ReplicaIndex;

impl Queue {
    /// Whether any request waits for a particular replica.
    pub(crate) fn has_preferences(&self) -> bool {
        self.delayed > 0
    }

    /// The number of requests that wait for a particular replica.
    pub(crate) const fn delayed(&self) -> usize {
        self.delayed
    }

    /// The number of requests that wait for this replica in particular.
    pub(crate) fn preferring(&self, replica: ReplicaIndex) -> usize {
        self.preferred_counts
            .get(replica.index())
            .copied()
            .unwrap_or_default()
    }

    /// Sets the replica that a request waits for; `None` for any.
    pub(crate) fn set_preferred(
        &mut self,
        seq: QueueSeq,
        preferred: Option<ReplicaIndex>,
        now: Time,
    ) {
        let Some(queued) = self.queued.get_mut(seq) else {
            return;
        };
        if preferred.is_some() {
            queued.delayed_since.get_or_insert(now);
        }
        let before = core::mem::replace(&mut queued.preferred, preferred);
        self.count_preferred(before, preferred);
    }

    /// Lets the requests that prefer this replica wait for any; returns whether there were some.
    pub(crate) fn forget_preferred(&mut self, replica: ReplicaIndex) -> bool {
        let count = self.preferred_counts.get_mut(replica.index());
        let count = count.map(core::mem::take).unwrap_or_default();
        if count == 0 {
            return false;
        }
        self.delayed = self.delayed.saturating_sub(count);
        for queued in self.queued.iter_mut() {
            if queued.preferred == Some(replica) {
                queued.preferred = None;
                queued.delayed_since = None;
            }
        }
        true
    }

    pub(super) fn count_preferred(
        &mut self,
        before: Option<ReplicaIndex>,
        after: Option<ReplicaIndex>,
    ) {
        if before == after {
            return;
        }
        self.delayed = self.delayed + usize::from(after.is_some()) - usize::from(before.is_some());
        let counts = &mut self.preferred_counts;
        if let Some(count) = before.and_then(|replica| counts.get_mut(replica.index())) {
            *count = count.saturating_sub(1);
        }
        if let Some(replica) = after {
            if counts.len() <= replica.index() {
                counts.resize(replica.index() + 1, 0);
            }
            if let Some(count) = counts.get_mut(replica.index()) {
                *count += 1;
            }
        }
    }
}
