//! Heartbeats between regions: each router asks every other one for a report, once an interval.
//!
//! As in the service: an answer is made when the question arrives, and counts as old as the question. That regions are
//! lost, and replicas adopted, is not simulated here; the routing core's own tests do that.

use core::time::Duration;
use std::collections::VecDeque;

use isotherm_router::{Event, PeerId, PeerReport, PeerSpec};

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
        let regions = 0..self.setup.regions.len();
        if regions.len() < 2 {
            return;
        }
        for sender in regions.clone() {
            for of in regions.clone().filter(|&of| of != sender) {
                let (Ok(from), Ok(to), Ok(peer)) =
                    (u32::try_from(sender), u32::try_from(of), u16::try_from(of))
                else {
                    continue;
                };
                let region = self.setup.regions.get(of);
                let spec = PeerSpec {
                    name: region.map(|region| region.name.clone()).unwrap_or_default(),
                };
                let peer = PeerId(peer);
                self.send_event(from, Event::PeerAdded { peer, spec });
                let link = u32::try_from(self.links.len()).unwrap_or(u32::MAX);
                self.links.push(Link {
                    sender: from,
                    of: to,
                    way: nanos(self.setup.network.between(sender, of)),
                    answers: VecDeque::new(),
                });
                // Services start when they start: their heartbeats are not in step.
                let phase = self.random() % nanos(HEARTBEAT);
                self.queue.add(phase, SimEvent::HeartbeatSend { link });
            }
        }
    }

    pub(super) fn send_heartbeat(&mut self, number: u32) {
        let Some(link) = self.links.get(number as usize) else {
            return;
        };
        self.queue.add(
            self.now + link.way,
            SimEvent::HeartbeatArrival { link: number },
        );
        self.queue.add(
            self.now + nanos(HEARTBEAT),
            SimEvent::HeartbeatSend { link: number },
        );
    }

    pub(super) fn answer_heartbeat(&mut self, number: u32) {
        let Some(link) = self.links.get_mut(number as usize) else {
            return;
        };
        let Some(asked) = self.balancers.get(link.of as usize) else {
            return;
        };
        link.answers.push_back(asked.router.report(time(self.now)));
        self.queue.add(
            self.now + link.way,
            SimEvent::HeartbeatReply { link: number },
        );
    }

    pub(super) fn receive_heartbeat(&mut self, number: u32) {
        let Some(link) = self.links.get_mut(number as usize) else {
            return;
        };
        let (Some(report), Ok(peer)) = (link.answers.pop_front(), u16::try_from(link.of)) else {
            return;
        };
        let (sender, round_trip) = (link.sender, 2 * link.way);
        let event = Event::PeerReported {
            peer: PeerId(peer),
            report,
            as_of: time(self.now - round_trip),
            round_trip: Duration::from_nanos(round_trip),
        };
        self.send_event(sender, event);
    }
}
