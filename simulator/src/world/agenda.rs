//! What happens next: a heap of events in the order of time, and of entry among equal times.
//!
//! That order is the whole of a run's determinism: nothing else decides between two events of one instant.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

/// A point in virtual time: nanoseconds since the start of the run.
pub(super) type Ns = u64;

/// What happens. Numbers are places in the world's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The next session starts.
    Starts,
    /// A client sends a step of its session.
    Sends { session: u32, step: u32 },
    /// A request arrives at a service.
    Arrives { journey: u32, at: u32 },
    /// A request arrives at its replica.
    Reaches { journey: u32 },
    /// An engine has something to do; an old epoch's wake-up is stale.
    Steps { replica: u32, epoch: u32 },
    /// The end of a response passes the service that dispatched it.
    Ends { journey: u32 },
    /// The end of a response passes the service of the client's region, which had forwarded the request.
    Returns { journey: u32 },
    /// A probe is at its replica.
    Reads { probe: u32 },
    /// A probe's answer is at its service.
    Tells { probe: u32 },
    /// A region asks another one how it is.
    Asks { link: u32 },
    /// The question is there, and is answered.
    Reports { link: u32 },
    /// The answer is back.
    Hears { link: u32 },
    /// A router's timeout.
    Ticks { balancer: u32 },
    /// A change of the fleet.
    Changes { change: u32 },
    /// The load is looked at.
    Samples,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Ns,
    number: u64,
    what: What,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// All that is to happen.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    entries: BinaryHeap<Reverse<Entry>>,
    number: u64,
}

impl Agenda {
    pub(super) fn add(&mut self, at: Ns, what: What) {
        let number = self.number;
        self.number += 1;
        self.entries.push(Reverse(Entry { at, number, what }));
    }

    pub(super) fn next(&mut self) -> Option<(Ns, What)> {
        let Reverse(entry) = self.entries.pop()?;
        Some((entry.at, entry.what))
    }
}
