//! The network: delays of messages, one way, the same in both directions.
//!
//! Delays are fixed: jitter would be far below the effect of the engines' steps and the probes' phases.

use core::time::Duration;

/// Delays of messages in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Delay between a client and the gateway of its own region.
    pub client_to_region: Duration,
    /// Delay between a service and a replica of the same region.
    pub service_to_replica: Duration,
    /// Delay between two regions.
    pub between_regions: Duration,
}

impl Default for Network {
    /// 0.25 ms inside a region, and 75 ms between two (about Virginia to Ireland and back in 150 ms, the order of SkyLB's
    /// regions).
    fn default() -> Self {
        Self {
            client_to_region: Duration::from_micros(250),
            service_to_replica: Duration::from_micros(250),
            between_regions: Duration::from_millis(75),
        }
    }
}

impl Network {
    /// Delay between two regions; zero within a region.
    pub fn between(&self, a: usize, b: usize) -> Duration {
        if a == b {
            Duration::ZERO
        } else {
            self.between_regions
        }
    }
}
