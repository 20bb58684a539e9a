//! Requests that wait for a particular replica, although others may be free (delay scheduling).

use super::{Queue, QueueSeq, QueuedRequest};
use crate::Time;
use crate::replica_index::ReplicaIndex;

impl Queue {
    /// The number of requests that wait for a particular replica.
    pub(crate) const fn delayed(&self) -> usize {
        self.delayed_len
    }

    /// The number of requests that wait for this replica in particular.
    pub(crate) fn preferring(&self, replica: ReplicaIndex) -> usize {
        self.delayed.get(&replica).map_or(0, |places| places.len())
    }

    /// Lets a request wait on that a round of service has asked: for a particular replica, or with `None` for any.
    pub(crate) fn keep_waiting(
        &mut self,
        seq: QueueSeq,
        preferred: Option<ReplicaIndex>,
        now: Time,
        round: u64,
    ) {
        let Some(queued) = self.queued.get_mut(seq) else {
            return;
        };
        queued.turns.asked_in = round;
        if preferred.is_some() {
            queued.delayed_since.get_or_insert(now);
        }
        if queued.preferred == preferred {
            return;
        }
        if let Some(mut queued) = self.queued.remove(seq) {
            self.remove_by_preference(&queued);
            queued.preferred = preferred;
            self.insert_by_preference(&queued);
            self.queued.insert(queued);
        }
    }

    /// Lets the requests that prefer this replica wait for any; returns whether there were some.
    pub(crate) fn forget_preferred(&mut self, replica: ReplicaIndex) -> bool {
        let places = self.delayed.remove(&replica).unwrap_or_default();
        self.delayed_len -= places.len();
        for place in &places {
            if let Some(queued) = self.queued.get_mut(place.seq()) {
                queued.preferred = None;
                queued.delayed_since = None;
                self.undecided.insert(*place, queued.pinned.as_deref());
            }
        }
        !places.is_empty()
    }

    /// Lets every request wait for any replica.
    pub(crate) fn forget_preferences(&mut self) {
        let replicas: Vec<ReplicaIndex> = self.delayed.keys().copied().collect();
        for replica in replicas {
            self.forget_preferred(replica);
        }
    }

    pub(super) fn insert_by_preference(&mut self, queued: &QueuedRequest) {
        let (place, pinned) = (queued.place, queued.pinned.as_deref());
        match queued.preferred {
            None => self.undecided.insert(place, pinned),
            Some(replica) => {
                let places = self.delayed.entry(replica).or_default();
                self.delayed_len += usize::from(places.insert(place));
            }
        }
    }

    pub(super) fn remove_by_preference(&mut self, queued: &QueuedRequest) {
        let (place, pinned) = (queued.place, queued.pinned.as_deref());
        let Some(replica) = queued.preferred else {
            return self.undecided.remove(place, pinned);
        };
        if let Some(places) = self.delayed.get_mut(&replica) {
            self.delayed_len -= usize::from(places.remove(&place));
            if places.is_empty() {
                self.delayed.remove(&replica);
            }
        }
    }
}
