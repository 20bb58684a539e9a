//! The event queue: a heap of events in the order of time, and of entry among equal times.
//!
//! Runs are deterministic because nothing else orders two events of an instant.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

/// A point in virtual time: nanoseconds since the start of the run.
pub(super) type Ns = u64;

/// An event. Numbers are indices into the simulation's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// The first token of a response passes the service that dispatched it.
    ResponseBegin { flight: u32 },
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
    /// A placement of a sibling arrives at a service.
    PlacementArrival { balancer: u32 },
    /// A router's timeout.
    RouterTimeout { balancer: u32 },
    /// A change of the fleet.
    FleetChange { change: u32 },
    /// The load of all replicas is sampled.
    LoadSample,
}

/// Events to come, with their times and the number of each entry.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    entries: BinaryHeap<Reverse<(Ns, u64, SimEvent)>>,
    number: u64,
}

impl EventQueue {
    pub(super) fn add(&mut self, at: Ns, event: SimEvent) {
        self.entries.push(Reverse((at, self.number, event)));
        self.number += 1;
    }

    /// Time of the next event.
    pub(super) fn next_at(&self) -> Option<Ns> {
        self.entries.peek().map(|Reverse((at, ..))| *at)
    }

    pub(super) fn next(&mut self) -> Option<(Ns, SimEvent)> {
        let Reverse((at, _, event)) = self.entries.pop()?;
        Some((at, event))
    }
}
