//! Heartbeats between regions: each router asks every other one for a report, once an interval.
//!
//! As in the service: an answer is made when the question arrives, and counts as old as the question. That regions are
//! lost, and leases taken, is not simulated here; the routing core's own tests do that.

use core::time::Duration;
use std::collections::VecDeque;

use isotherm_router::{Event, PeerId, PeerReport};

use super::event_queue::{Ns, SimEvent};
use super::{Simulation, nanos, time};

/// Interval between heartbeats to a peer: the service's default.
const HEARTBEAT: Duration = Duration::from_millis(200);

/// A link: a region that sends heartbeats to another.
#[derive(Debug)]
pub(super) struct Link {
    sender: u32,
    of: u32,
    way: Ns,
    /// Answers on their way back.
    answers: VecDeque<PeerReport>,
}

impl Simulation<'_> {
    pub(super) fn build_links(&mut self) {
        if self.setup.regions.len() < 2 {
            return;
        }
        for sender in self.balancers.numbers() {
            for of in self.balancers.numbers().filter(|of| *of != sender) {
                let (from, to) = (self.balancers[sender].region, self.balancers[of].region);
                let region = self.setup.regions.get(to);
                let event = Event::PeerAdded {
                    peer: peer(of),
                    name: region.map(|region| region.name.clone()).unwrap_or_default(),
                };
                self.send_event(sender, event);
                let link = self.links.push(Link {
                    sender,
                    of,
                    way: nanos(self.setup.network.between(from, to)),
                    answers: VecDeque::new(),
                });
                // Services start at their own times: their heartbeats are not in step.
                let phase = self.random() % nanos(HEARTBEAT);
                self.queue.add(phase, SimEvent::HeartbeatSend { link });
            }
        }
    }

    pub(super) fn send_heartbeat(&mut self, link: u32) {
        let at = self.now + self.links[link].way;
        self.queue.add(at, SimEvent::HeartbeatArrival { link });
        let next = self.now + nanos(HEARTBEAT);
        self.queue.add(next, SimEvent::HeartbeatSend { link });
    }

    pub(super) fn answer_heartbeat(&mut self, number: u32) {
        let link = &mut self.links[number];
        let answer = self.balancers[link.of].router.report();
        link.answers.push_back(answer);
        let at = self.now + link.way;
        self.queue
            .add(at, SimEvent::HeartbeatReply { link: number });
    }

    pub(super) fn receive_heartbeat(&mut self, number: u32) {
        let link = &mut self.links[number];
        let Some(report) = link.answers.pop_front() else {
            return;
        };
        let (sender, round_trip) = (link.sender, 2 * link.way);
        let event = Event::PeerReported {
            peer: peer(link.of),
            report,
            as_of: time(self.now - round_trip),
            round_trip: Duration::from_nanos(round_trip),
        };
        self.send_event(sender, event);
    }
}

/// The identity of a router to its peers.
pub(super) fn peer(balancer: u32) -> PeerId {
    PeerId(u16::try_from(balancer).unwrap_or(u16::MAX))
}
