//! The network: how long a message takes from one place to another.
//!
//! Delays are fixed, one way, and the same in both directions. Jitter was left out: at these sizes it is far below what the
//! engines' steps and the probes' phases bring in, and a run's figures would need more seeds to say the same.

use core::time::Duration;
use std::collections::BTreeMap;

/// Delays of messages in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Delay between a client and the gateway of its own region.
    pub client_to_region: Duration,
    /// Delay between a service and a replica of the same region.
    pub service_to_replica: Duration,
    /// Delay between two regions without an entry in [`Self::links`].
    pub between_regions: Duration,
    /// Delays between particular pairs of regions, the smaller index first.
    pub links: BTreeMap<(usize, usize), Duration>,
}

impl Default for Network {
    /// 0.25 ms inside a region, and 75 ms between two (about Virginia to Ireland and back in 150 ms, the order of SkyLB's
    /// regions).
    fn default() -> Self {
        Self {
            client_to_region: Duration::from_micros(250),
            service_to_replica: Duration::from_micros(250),
            between_regions: Duration::from_millis(75),
            links: BTreeMap::new(),
        }
    }
}

impl Network {
    /// Delay between two regions; zero within a region.
    #[must_use]
    pub fn between(&self, a: usize, b: usize) -> Duration {
        if a == b {
            return Duration::ZERO;
        }
        let link = self.links.get(&(a.min(b), a.max(b)));
        link.copied().unwrap_or(self.between_regions)
    }

    /// Delay between a client of a region and a gateway in another.
    #[must_use]
    pub fn to_gateway(&self, client: usize, gateway: usize) -> Duration {
        self.client_to_region + self.between(client, gateway)
    }

    /// Delay between a service of a region and a replica of another.
    #[must_use]
    pub fn to_replica(&self, service: usize, replica: usize) -> Duration {
        self.service_to_replica + self.between(service, replica)
    }
}
