//! Services of one region over the same replicas, which tell each other their placements.
//!
//! As in the service, placements gather for a moment and travel together; a session stays at one service, as a load balancer in front of
//! the services would keep a connection.

use isotherm_router::Event;

use super::Simulation;
use super::event_queue::{Ns, SimEvent};
use crate::prompt::mix;

/// Time from a placement to its arrival at the siblings: half of the time for which placements gather, and the way.
const PLACEMENT_NS: Ns = 5_000_000;
/// Keeps the choice of a service apart from other hashes.
const SERVICE: u64 = 0x7365_7276_6963_6501;

impl Simulation<'_> {
    /// Services of each region.
    pub(super) fn services(&self) -> usize {
        match self.setup.regions.len() {
            1 => self.setup.services.max(1),
            _ => 1,
        }
    }

    /// The service that a session's client calls.
    pub(super) fn service_of(&self, region: usize, session_key: u64) -> Option<u32> {
        let services = self.balancers_of(region);
        let count = u64::from(services.end - services.start).max(1);
        let at = u32::try_from(mix(SERVICE, session_key) % count).ok()?;
        self.balancer_of(region).map(|first| first + at)
    }

    /// Sends a service's placements to its siblings.
    pub(super) fn send_placements(&mut self, from: u32) {
        let siblings = self.balancers_of(self.balancers[from].region);
        while let Some(placement) = self.balancers[from].router.poll_placement() {
            for sibling in siblings.clone().filter(|sibling| *sibling != from) {
                let arriving = &mut self.balancers[sibling].placements;
                arriving.push_back(placement.clone());
                let event = SimEvent::PlacementArrival { balancer: sibling };
                self.queue.add(self.now + PLACEMENT_NS, event);
            }
        }
    }

    pub(super) fn receive_placement(&mut self, balancer: u32) {
        if let Some(placement) = self.balancers[balancer].placements.pop_front() {
            self.send_event(balancer, Event::Shared(placement));
        }
    }
}
