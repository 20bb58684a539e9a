//! Requests that wait for a particular replica, although others may be free (delay scheduling).

use super::{Queue, QueueSeq};
use crate::Time;
use crate::replica_index::ReplicaIndex;

impl Queue {
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

    pub(super) fn count_preferred(
        &mut self,
        before: Option<ReplicaIndex>,
        after: Option<ReplicaIndex>,
    ) {
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
}
