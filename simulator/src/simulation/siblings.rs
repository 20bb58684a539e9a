//! Services of one region over the same replicas, which tell each other their placements.
//!
//! As in the service, placements gather for a moment and travel together; a session stays at one service, as a load balancer in front of
//! the services would keep a connection. Requests that another router serves go to the replicas in turn.

use isotherm_router::Event;

use super::Simulation;
use super::event_queue::{Ns, SimEvent};
use super::replica::State;
use crate::prompt::mix;

/// Time from a placement to its arrival at the siblings: half of the time for which placements gather, and the way.
const PLACEMENT_NS: Ns = 5_000_000;
/// Keeps the choice of a service apart from other hashes.
const SERVICE: u64 = 0x7365_7276_6963_6501;
/// Keeps the choice of the sessions of another router apart.
const BYPASS: u64 = 0x6279_7061_7373_0001;

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

    /// Whether another router serves a session.
    pub(super) fn is_bypass(&self, session_key: u64) -> bool {
        let part = (mix(BYPASS, session_key) >> 11) as f64 / (1_u64 << 53) as f64;
        part < self.setup.bypass_share
    }

    /// The replica of a region whose turn it is.
    pub(super) fn next_in_turn(&mut self, region: usize) -> Option<u32> {
        let is_member = |number: &u32| {
            let replica = &self.replicas[*number];
            replica.region == region && replica.state == State::Member
        };
        let members: Vec<u32> = self.replicas.numbers().filter(is_member).collect();
        let at = self.bypass_turn.checked_rem(members.len())?;
        self.bypass_turn = self.bypass_turn.wrapping_add(1);
        members.get(at).copied()
    }
}
