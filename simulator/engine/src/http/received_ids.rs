//! The number of requests with each id of a client, bounded.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// Ids whose counts are kept; older ones are forgotten.
const IDS_MAX: usize = 100_000;
/// Longest id that is counted.
const ID_BYTES_MAX: usize = 128;

/// The number of requests with each id.
#[derive(Debug, Default)]
pub struct ReceivedIds(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    by_id: HashMap<Arc<str>, u32>,
    oldest_first: VecDeque<Arc<str>>,
}

impl ReceivedIds {
    /// Counts a request.
    pub(super) fn count(&self, id: &str) {
        if id.len() > ID_BYTES_MAX {
            return;
        }
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.by_id.get_mut(id) {
            *count = count.saturating_add(1);
            return;
        }
        if counts.oldest_first.len() >= IDS_MAX
            && let Some(oldest) = counts.oldest_first.pop_front()
        {
            counts.by_id.remove(&oldest);
        }
        let id: Arc<str> = id.into();
        counts.by_id.insert(Arc::clone(&id), 1);
        counts.oldest_first.push_back(id);
    }

    /// The counts of all ids.
    pub(super) fn all(&self) -> HashMap<String, u32> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let by_id = counts.by_id.iter();
        by_id.map(|(id, count)| (id.to_string(), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_the_oldest_ids_are_forgotten() {
        let received = ReceivedIds::default();
        for number in 0..=IDS_MAX {
            received.count(&number.to_string());
        }
        received.count("1");
        received.count(&"x".repeat(ID_BYTES_MAX + 1));
        let all = received.all();
        assert_eq!(all.len(), IDS_MAX);
        assert_eq!(
            (all.get("0"), all.get("1"), all.get("2")),
            (None, Some(&2), Some(&1))
        );
    }
}
