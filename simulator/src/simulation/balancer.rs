//! A router with what its driver keeps for it: which request is which, and when it wants to be called.

use core::ops::Range;
use std::collections::{HashMap, VecDeque};

use isotherm_router::{Effect, Event, Placement, RequestId, Router, RouterConfig};

use super::event_queue::{Ns, SimEvent};
use super::{Simulation, time};
use crate::prompt::mix;
use crate::setup::{Arrangement, Setup};

/// When a timeout that is past is tried again.
const RETRY_NS: Ns = 1_000;

/// A service: a router and its timeouts.
#[derive(Debug)]
pub(super) struct Balancer {
    pub(super) region: usize,
    pub(super) router: Router,
    /// Request of a router's request id; only looked up by key.
    pub(super) open: HashMap<RequestId, u32>,
    /// Placements on their way from siblings.
    pub(super) placements: VecDeque<Placement>,
    next_request: u64,
    /// The earliest timeout on the event queue.
    armed: Option<Ns>,
}

impl Balancer {
    fn new(region: usize, number: usize, config: RouterConfig, setup: &Setup) -> Self {
        let seed = mix(setup.seed, number as u64);
        Self {
            region,
            router: Router::new(config, seed),
            open: HashMap::new(),
            placements: VecDeque::new(),
            next_request: 0,
            armed: None,
        }
    }

    /// A new identity for a request that arrives.
    pub(super) fn open_request(&mut self, flight: u32) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.open.insert(id, flight);
        id
    }
}

impl Simulation<'_> {
    pub(super) fn build_balancers(&mut self) {
        let setup = self.setup;
        let last = setup.regions.len().saturating_sub(1);
        let (config, regions) = match &setup.arrangement {
            Arrangement::Router(config) | Arrangement::RegionLocal(config) => (config, 0..=last),
            Arrangement::Central { config, region } => {
                let region = (*region).min(last);
                (config, region..=region)
            }
            Arrangement::Oracle => return,
        };
        let services = self.services();
        for region in regions {
            for _ in 0..services {
                let mut config = config.clone();
                config.region.share |= services > 1;
                let number = self.balancers.iter().len();
                let number = if services > 1 { number } else { region };
                let balancer = Balancer::new(region, number, config, setup);
                self.balancers.push(balancer);
            }
        }
        if matches!(setup.arrangement, Arrangement::Router(_)) {
            self.build_links();
        }
    }

    /// The first service of a region; none: the oracle decides at the region's gateway.
    pub(super) fn balancer_of(&self, region: usize) -> Option<u32> {
        match &self.setup.arrangement {
            Arrangement::Router(_) | Arrangement::RegionLocal(_) => u32::try_from(region).ok(),
            Arrangement::Central { .. } => Some(0),
            Arrangement::Oracle => None,
        }
    }

    /// The services of a region.
    pub(super) fn balancers_of(&self, region: usize) -> Range<u32> {
        let first = self.balancer_of(region);
        let services = u32::try_from(self.services()).unwrap_or(1);
        first.map_or(0..0, |first| first..first + services)
    }

    /// Hands an event to a router, and applies its effects.
    pub(super) fn send_event(&mut self, balancer: u32, event: Event) {
        let now = time(self.now);
        self.balancers[balancer].router.handle(now, event);
        self.drain_router(balancer);
    }

    pub(super) fn handle_router_timeout(&mut self, balancer: u32) {
        let now = self.now;
        let due = &mut self.balancers[balancer];
        due.armed = due.armed.filter(|armed| *armed > now);
        if due.router.poll_timeout().is_some_and(|at| at <= time(now)) {
            due.router.handle_timeout(time(now));
        }
        self.drain_router(balancer);
    }

    /// Takes a router's effects, and sees to its next timeout.
    fn drain_router(&mut self, number: u32) {
        while let Some(effect) = self.balancers[number].router.poll_effect() {
            self.apply(number, effect);
        }
        self.send_placements(number);
        let balancer = &mut self.balancers[number];
        if let Some(at) = balancer.router.poll_timeout() {
            // A timeout that the router leaves in the past would hold the simulation there.
            let at = at.as_nanos().max(self.now + RETRY_NS);
            if balancer.armed.is_none_or(|armed| at < armed) {
                balancer.armed = Some(at);
                self.queue
                    .add(at, SimEvent::RouterTimeout { balancer: number });
            }
        }
    }

    fn apply(&mut self, number: u32, effect: Effect) {
        let id = match &effect {
            Effect::Dispatch(id, _) | Effect::Forward(id, _) | Effect::Reject { id, .. } => *id,
            // A simulated engine answers late, but it answers.
            Effect::Hung { .. } => return,
        };
        let Some(flight) = self.balancers[number].open.get(&id).copied() else {
            return;
        };
        match effect {
            Effect::Hung { .. } => {}
            Effect::Dispatch(_, decision) => self.dispatched(number, flight, id, &decision),
            Effect::Forward(_, forwarding) => self.forwarded(number, flight, id, &forwarding),
            Effect::Reject { reason, .. } => {
                self.close(number, id);
                self.rejected(number, flight, reason);
            }
        }
    }

    /// Forgets a request of a service.
    pub(super) fn close(&mut self, balancer: u32, id: RequestId) {
        self.balancers[balancer].open.remove(&id);
    }
}
