//! The limit of connections of each region.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// The most connections of one region: many services, each twice while it redials. Without TLS, of all callers.
const CONNECTIONS_PER_REGION_MAX: usize = 64;
/// The most further connections, whose streams the service rejects with a status. A caller whose connection is cut without
/// a status takes this service for dead.
const REJECTED_PER_REGION_MAX: usize = 64;

#[derive(Clone, Debug)]
pub(super) struct VerifiedConnection {
    /// The region in the caller's certificate; `None` without TLS.
    pub(super) region: Option<Arc<str>>,
    pub(super) from: SocketAddr,
    /// Whether the connection is within its region's limit.
    pub(super) is_within_limit: bool,
}

/// Counts the connections of each region; clones share the counts.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionLimiter(Arc<Mutex<BTreeMap<Option<Arc<str>>, usize>>>);

/// One counted connection; dropping it ends the count.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    pub(super) connection: VerifiedConnection,
    limiter: ConnectionLimiter,
}

impl ConnectionLimiter {
    pub(super) fn acquire(
        &self,
        region: Option<Arc<str>>,
        from: SocketAddr,
    ) -> Result<ConnectionPermit, &'static str> {
        let mut counts = self.0.lock();
        let count = counts.entry(region.clone()).or_default();
        if *count >= CONNECTIONS_PER_REGION_MAX + REJECTED_PER_REGION_MAX {
            return Err("the region has far too many connections");
        }
        *count += 1;
        let is_within_limit = *count <= CONNECTIONS_PER_REGION_MAX;
        Ok(ConnectionPermit {
            connection: VerifiedConnection {
                region,
                from,
                is_within_limit,
            },
            limiter: self.clone(),
        })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self.limiter.0.lock();
        if let Some(count) = counts.get_mut(&self.connection.region) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.connection.region);
            }
        }
    }
}
