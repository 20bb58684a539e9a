//! Delays of each leg of a request.

use super::super::event_queue::Ns;
use super::super::{Simulation, nanos};
use super::InFlightRequest;

impl Simulation<'_> {
    /// The region whose gateway a client's request goes to.
    pub(super) fn gateway(&self, own_service: Option<u32>, region: usize) -> usize {
        let balancer = own_service.and_then(|own_service| self.balancers.get(own_service as usize));
        balancer.map_or(region, |balancer| balancer.region)
    }

    pub(super) fn client_to_gateway(&self, region: usize) -> Ns {
        let gateway = self.gateway(self.balancer_of(region), region);
        nanos(self.setup.network.to_gateway(region, gateway))
    }

    /// From a service in this region to a replica.
    pub(in crate::simulation) fn service_to_replica(&self, from: usize, replica: u32) -> Ns {
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
    pub(super) fn replica_to_service(&self, flight: &InFlightRequest) -> Ns {
        let from = match flight.served {
            Some((balancer, _)) => self.gateway(Some(balancer), 0),
            None => self
                .records
                .get(flight.number)
                .map_or(0, |record| record.region),
        };
        self.service_to_replica(from, flight.replica)
    }

    /// From the service that dispatched a request to the one of its client's region.
    pub(super) fn detour(&self, flight: &InFlightRequest) -> Ns {
        flight.served.map_or(0, |(balancer, _)| {
            self.between(balancer, flight.own_service)
        })
    }

    /// From the service that dispatched a request to its client.
    pub(super) fn service_to_client(&self, flight: &InFlightRequest, record: usize) -> Ns {
        let region = self.records.get(record).map_or(0, |record| record.region);
        self.detour(flight) + self.client_to_gateway(region)
    }
}
