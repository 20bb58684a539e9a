//! The network from one region to another.

use std::net::SocketAddr;
use std::time::Duration;

use crate::wire::{Weather, Wire};

/// What one region reaches another by: a wire for what the services say to each other, and one for forwarded requests
/// and the health checks of gateways. They share the weather. Replicas are reached without a wire.
#[derive(Debug)]
pub struct Link {
    weather: Weather,
    peering: Wire,
    gateway: Wire,
}

impl Link {
    pub(crate) async fn start(
        round_trip: Duration,
        services: Vec<SocketAddr>,
        gateway: SocketAddr,
    ) -> anyhow::Result<Self> {
        let weather = Weather::clear(round_trip);
        let peering = Wire::start(&weather, services).await?;
        let gateway = Wire::start(&weather, vec![gateway]).await?;
        Ok(Self {
            weather,
            peering,
            gateway,
        })
    }

    /// What the network is like: slow, silent, cut.
    #[must_use]
    pub fn weather(&self) -> &Weather {
        &self.weather
    }

    /// The wire to the other region's services.
    #[must_use]
    pub fn peering(&self) -> &Wire {
        &self.peering
    }

    /// The wire to the other region's Envoy.
    #[must_use]
    pub fn gateway(&self) -> &Wire {
        &self.gateway
    }
}
