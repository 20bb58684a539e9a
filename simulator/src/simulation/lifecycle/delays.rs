//! Delays of each leg of a request.

use super::super::event_queue::Ns;
use super::super::{Simulation, nanos};
use super::InFlightRequest;

impl Simulation<'_> {
    /// The region whose gateway a client's request goes to.
    pub(super) fn gateway(&self, own_service: Option<u32>, region: usize) -> usize {
        own_service.map_or(region, |service| self.balancers[service].region)
    }

    pub(super) fn client_to_gateway(&self, region: usize) -> Ns {
        let gateway = self.gateway(self.balancer_of(region), region);
        let network = &self.setup.network;
        nanos(network.client_to_region + network.between(region, gateway))
    }

    /// From a service in this region to a replica.
    pub(crate) fn service_to_replica(&self, from: usize, replica: u32) -> Ns {
        let to = self.replicas[replica].region;
        let network = &self.setup.network;
        nanos(network.service_to_replica + network.between(from, to))
    }

    pub(super) fn between(&self, a: u32, b: u32) -> Ns {
        let (a, b) = (self.balancers[a].region, self.balancers[b].region);
        nanos(self.setup.network.between(a, b))
    }

    /// From a request's replica to the service that dispatched it.
    pub(super) fn replica_to_service(&self, flight: &InFlightRequest) -> Ns {
        let from = match flight.served {
            Some((balancer, _)) => self.balancers[balancer].region,
            None => self.records[flight.record].region,
        };
        self.service_to_replica(from, flight.replica)
    }

    /// From the service that dispatched a request to the service of its client's region.
    pub(super) fn detour(&self, flight: &InFlightRequest) -> Ns {
        flight.served.map_or(0, |(balancer, _)| {
            self.between(balancer, flight.own_service)
        })
    }

    /// From the service that dispatched a request to its client.
    pub(super) fn service_to_client(&self, flight: &InFlightRequest) -> Ns {
        self.detour(flight) + self.client_to_gateway(self.records[flight.record].region)
    }
}
