//! What routers of several regions tell each other: each asks every other one, once a heartbeat, how it is.
//!
//! As in the service: an answer is made when the question arrives, and counts as old as the question. That regions are
//! lost, and replicas adopted, is not simulated here; the routing core's own tests do that.

use core::time::Duration;
use std::collections::VecDeque;

use isotherm_router::{Event, PeerId, PeerReport, PeerSpec};

use super::agenda::{Ns, What};
use super::{World, nanos, time};

/// Between two heartbeats to one peer: the service's default.
const HEARTBEAT: Duration = Duration::from_millis(200);

/// One region that asks another.
#[derive(Debug)]
pub(super) struct Link {
    asker: u32,
    of: u32,
    way: Ns,
    /// Answers on their way back.
    answers: VecDeque<PeerReport>,
}

impl World<'_> {
    pub(super) fn build_links(&mut self) {
        let regions = 0..self.setup.regions.len();
        if regions.len() < 2 {
            return;
        }
        for asker in regions.clone() {
            for of in regions.clone().filter(|&of| of != asker) {
                let (Ok(from), Ok(to), Ok(peer)) =
                    (u32::try_from(asker), u32::try_from(of), u16::try_from(of))
                else {
                    continue;
                };
                let region = self.setup.regions.get(of);
                let spec = PeerSpec {
                    name: region.map(|region| region.name.clone()).unwrap_or_default(),
                };
                let peer = PeerId(peer);
                self.tell(from, Event::PeerAdded { peer, spec });
                let link = u32::try_from(self.links.len()).unwrap_or(u32::MAX);
                self.links.push(Link {
                    asker: from,
                    of: to,
                    way: nanos(self.setup.network.between(asker, of)),
                    answers: VecDeque::new(),
                });
                // Services start when they start: their heartbeats are not in step.
                let phase = self.draw() % nanos(HEARTBEAT);
                self.agenda.add(phase, What::Asks { link });
            }
        }
    }

    pub(super) fn asks(&mut self, number: u32) {
        let Some(link) = self.links.get(number as usize) else {
            return;
        };
        self.agenda
            .add(self.now + link.way, What::Reports { link: number });
        self.agenda
            .add(self.now + nanos(HEARTBEAT), What::Asks { link: number });
    }

    pub(super) fn reports(&mut self, number: u32) {
        let Some(link) = self.links.get_mut(number as usize) else {
            return;
        };
        let Some(asked) = self.balancers.get(link.of as usize) else {
            return;
        };
        link.answers.push_back(asked.router.report(time(self.now)));
        self.agenda
            .add(self.now + link.way, What::Hears { link: number });
    }

    pub(super) fn hears(&mut self, number: u32) {
        let Some(link) = self.links.get_mut(number as usize) else {
            return;
        };
        let (Some(report), Ok(peer)) = (link.answers.pop_front(), u16::try_from(link.of)) else {
            return;
        };
        let (asker, round_trip) = (link.asker, 2 * link.way);
        let event = Event::PeerReported {
            peer: PeerId(peer),
            report,
            as_of: time(self.now - round_trip),
            round_trip: Duration::from_nanos(round_trip),
        };
        self.tell(asker, event);
    }
}
