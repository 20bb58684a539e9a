//! Counts of a worker, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use strum::{EnumCount, IntoStaticStr, VariantArray};

use super::in_flight::InFlight;
use crate::pace::Priority;

/// The end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum AttemptEnd {
    /// The request has a response of status 2xx.
    Success,
    /// The request has an error as its result.
    Error,
    /// The gateway answered 429.
    Refused,
    /// Another attempt follows, because of a failure.
    Failed,
}

/// Counts of a worker since its start, and its numbers now.
#[derive(Debug, Default)]
pub struct WorkerCounters {
    sent: [AtomicU64; 2],
    ended: [AtomicU64; AttemptEnd::COUNT],
    taken_over: AtomicU64,
    in_flight: [AtomicU64; 2],
    window: [AtomicU64; 2],
}

/// Both priorities, in the order of their places in an array.
pub const PRIORITIES: [Priority; 2] = [Priority::NonInteractive, Priority::Interactive];

impl WorkerCounters {
    /// Requests sent with a priority.
    #[must_use]
    pub fn sent(&self, priority: Priority) -> u64 {
        read(&self.sent, priority as usize)
    }

    /// Attempts that ended in a way.
    #[must_use]
    pub fn ended(&self, end: AttemptEnd) -> u64 {
        read(&self.ended, end as usize)
    }

    /// Requests that were taken over from another worker.
    #[must_use]
    pub fn taken_over(&self) -> u64 {
        self.taken_over.load(Ordering::Relaxed)
    }

    /// Requests at the gateway with a priority.
    #[must_use]
    pub fn in_flight(&self, priority: Priority) -> u64 {
        read(&self.in_flight, priority as usize)
    }

    /// Requests that the gateway takes at once with a priority, as far as the worker has learned.
    #[must_use]
    pub fn window(&self, priority: Priority) -> u64 {
        read(&self.window, priority as usize)
    }

    pub(super) fn count_sent(&self, priority: Priority, is_taken_over: bool) {
        add(&self.sent, priority as usize);
        self.taken_over
            .fetch_add(u64::from(is_taken_over), Ordering::Relaxed);
    }

    pub(super) fn count_ended(&self, end: AttemptEnd) {
        add(&self.ended, end as usize);
    }

    pub(super) fn show(&self, in_flight: &InFlight, window: impl Fn(Priority) -> usize) {
        for priority in PRIORITIES {
            let numbers = [
                (&self.in_flight, in_flight.of_priority(priority)),
                (&self.window, window(priority)),
            ];
            for (gauge, number) in numbers {
                if let Some(gauge) = gauge.get(priority as usize) {
                    gauge.store(number as u64, Ordering::Relaxed);
                }
            }
        }
    }
}

fn read(counters: &[AtomicU64], index: usize) -> u64 {
    let counter = counters.get(index);
    counter.map_or(0, |counter| counter.load(Ordering::Relaxed))
}

fn add(counters: &[AtomicU64], index: usize) {
    if let Some(counter) = counters.get(index) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
