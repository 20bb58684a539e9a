//! The network from one region to another.

use std::net::SocketAddr;
use std::time::Duration;

use crate::faulty_link::{FaultyLink, NetworkConditions};

/// The path on which one region reaches another: one proxy for the peering between services, one for forwarded requests
/// and health checks of gateways. Both share their network conditions. Replicas are reached directly.
#[derive(Debug)]
pub struct RegionLink {
    conditions: NetworkConditions,
    peering: FaultyLink,
    gateway: FaultyLink,
}

impl RegionLink {
    pub(crate) async fn start(
        round_trip: Duration,
        services: Vec<SocketAddr>,
        gateway: SocketAddr,
    ) -> anyhow::Result<Self> {
        let conditions = NetworkConditions::with_round_trip(round_trip);
        let peering = FaultyLink::start(&conditions, services).await?;
        let gateway = FaultyLink::start(&conditions, vec![gateway]).await?;
        Ok(Self {
            conditions,
            peering,
            gateway,
        })
    }

    /// The conditions of the network: delay, black hole, cut.
    #[must_use]
    pub fn conditions(&self) -> &NetworkConditions {
        &self.conditions
    }

    /// The proxy to the other region's services.
    #[must_use]
    pub fn peering(&self) -> &FaultyLink {
        &self.peering
    }

    /// The proxy to the other region's Envoy.
    #[must_use]
    pub fn gateway(&self) -> &FaultyLink {
        &self.gateway
    }
}
