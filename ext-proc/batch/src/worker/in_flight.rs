//! Numbers of lines in flight.

use std::collections::BTreeMap;

use crate::pace::Priority;
use crate::store::BatchRow;

/// The lines of one owner for one model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lane {
    pub(super) owner: String,
    pub(super) model: String,
}

impl Lane {
    pub(super) fn of(batch: &BatchRow) -> Self {
        Self {
            owner: batch.owner.clone(),
            model: batch.model.clone(),
        }
    }
}

/// Numbers of lines in flight.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    by_batch: BTreeMap<(String, Priority), usize>,
    by_lane: BTreeMap<(Lane, Priority), usize>,
    total: usize,
}

impl InFlight {
    pub(super) fn add(&mut self, batch: &str, lane: &Lane, priority: Priority) {
        *self
            .by_batch
            .entry((batch.to_owned(), priority))
            .or_default() += 1;
        *self.by_lane.entry((lane.clone(), priority)).or_default() += 1;
        self.total += 1;
    }

    pub(super) fn remove(&mut self, batch: &str, lane: &Lane, priority: Priority) {
        subtract(&mut self.by_batch, (batch.to_owned(), priority));
        subtract(&mut self.by_lane, (lane.clone(), priority));
        self.total = self.total.saturating_sub(1);
    }

    /// Number of lines of a batch with a priority.
    pub(super) fn of_batch(&self, batch: &str, priority: Priority) -> usize {
        let key = (batch.to_owned(), priority);
        self.by_batch.get(&key).copied().unwrap_or_default()
    }

    /// Number of lines of an owner for a model, with a priority.
    pub(super) fn of_lane(&self, lane: &Lane, priority: Priority) -> usize {
        let key = (lane.clone(), priority);
        self.by_lane.get(&key).copied().unwrap_or_default()
    }

    /// Number of lines with a priority.
    pub(super) fn of_priority(&self, priority: Priority) -> usize {
        let of_priority = self.by_lane.iter().filter(|((_, of), _)| *of == priority);
        of_priority.map(|(_, count)| count).sum()
    }

    /// Whether an owner has a line in flight.
    pub(super) fn has_owner(&self, owner: &str) -> bool {
        self.by_lane.keys().any(|(lane, _)| lane.owner == owner)
    }

    pub(super) fn len(&self) -> usize {
        self.total
    }
}

fn subtract<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
