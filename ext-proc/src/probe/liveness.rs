//! Checks whether a replica answers at all, with any status.

use std::net::SocketAddr;
use std::time::Duration;

use super::fetch::{Fetcher, ProbeError};

/// A page that most engines have. An engine without it answers with a status, which proves that it is alive.
const PATH: &str = "/metrics";

/// Probes the liveness of replicas. Clones share their connections.
#[derive(Clone, Debug)]
pub(crate) struct LivenessProbe(Fetcher);

impl LivenessProbe {
    pub(crate) fn new() -> Self {
        Self(Fetcher::new())
    }

    /// Whether the replica at `addr` answers at all.
    pub(crate) async fn is_alive(&self, addr: SocketAddr, timeout: Duration) -> bool {
        match self.0.get(addr, PATH, timeout).await {
            Ok(_) | Err(ProbeError::Status { .. } | ProbeError::TooLarge | ProbeError::Page(_)) => {
                true
            }
            Err(ProbeError::Timeout(_) | ProbeError::Connection(_)) => false,
        }
    }
}
