//! The event queue: a heap of events in the order of time, and of entry among equal times.
//!
//! Runs are deterministic because nothing else orders two events of an instant.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

/// A point in virtual time: nanoseconds since the start of the run.
pub(super) type Ns = u64;

/// An event. Numbers are indices into the simulation's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SimEvent {
    /// The next session starts.
    SessionStart,
    /// A client sends a step of its session.
    ClientSend { session: u32, step: u32 },
    /// A request arrives at a service.
    ServiceArrival { flight: u32, service: u32 },
    /// A request arrives at its replica.
    ReplicaArrival { flight: u32 },
    /// An engine's timeout; a timeout of an old epoch is stale.
    EngineStep { replica: u32, epoch: u32 },
    /// The end of a response passes the service that dispatched it.
    ResponseEnd { flight: u32 },
    /// The end of a response passes the service of the client's region, which had forwarded the request.
    ForwardedResponseEnd { flight: u32 },
    /// A probe arrives at its replica.
    ProbeArrival { probe: u32 },
    /// A probe's answer arrives at its service.
    ProbeReply { probe: u32 },
    /// A region sends a heartbeat to another.
    HeartbeatSend { link: u32 },
    /// A heartbeat arrives, and the region answers it.
    HeartbeatArrival { link: u32 },
    /// The answer to a heartbeat arrives.
    HeartbeatReply { link: u32 },
    /// A router's timeout.
    RouterTimeout { balancer: u32 },
    /// A change of the fleet.
    FleetChange { change: u32 },
    /// The load of all replicas is sampled.
    LoadSample,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Ns,
    number: u64,
    event: SimEvent,
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

/// Events to come.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    entries: BinaryHeap<Reverse<Entry>>,
    number: u64,
}

impl EventQueue {
    pub(super) fn add(&mut self, at: Ns, event: SimEvent) {
        let number = self.number;
        self.number += 1;
        self.entries.push(Reverse(Entry { at, number, event }));
    }

    pub(super) fn next(&mut self) -> Option<(Ns, SimEvent)> {
        let Reverse(entry) = self.entries.pop()?;
        Some((entry.at, entry.event))
    }
}
