//! How long each part of a request's way takes.

use super::super::agenda::Ns;
use super::super::{World, nanos};
use super::Journey;

impl World<'_> {
    /// The region whose gateway a client's request goes to.
    pub(super) fn gateway(&self, home: Option<u32>, region: usize) -> usize {
        let balancer = home.and_then(|home| self.balancers.get(home as usize));
        balancer.map_or(region, |balancer| balancer.region)
    }

    pub(super) fn gateway_way(&self, region: usize) -> Ns {
        let gateway = self.gateway(self.balancer_of(region), region);
        nanos(self.setup.network.to_gateway(region, gateway))
    }

    /// From a service in this region to a replica.
    pub(in crate::world) fn way(&self, from: usize, replica: u32) -> Ns {
        let to = self.replicas.get(replica as usize);
        let to = to.map_or(from, |replica| replica.region);
        nanos(self.setup.network.to_replica(from, to))
    }

    pub(super) fn between(&self, a: u32, b: u32) -> Ns {
        let region = |number: u32| {
            let balancer = self.balancers.get(number as usize);
            balancer.map_or(0, |balancer| balancer.region)
        };
        nanos(self.setup.network.between(region(a), region(b)))
    }

    /// From a request's replica to the service that dispatched it.
    pub(super) fn way_back(&self, journey: &Journey) -> Ns {
        let from = match journey.served {
            Some((balancer, _)) => self.gateway(Some(balancer), 0),
            None => self
                .requests
                .get(journey.number)
                .map_or(0, |record| record.region),
        };
        self.way(from, journey.replica)
    }

    /// From the service that dispatched a request to the one of its client's region.
    pub(super) fn detour(&self, journey: &Journey) -> Ns {
        journey
            .served
            .map_or(0, |(balancer, _)| self.between(balancer, journey.home))
    }

    /// From the service that dispatched a request to its client.
    pub(super) fn way_home(&self, journey: &Journey, record: usize) -> Ns {
        let region = self.requests.get(record).map_or(0, |record| record.region);
        self.detour(journey) + self.gateway_way(region)
    }
}
