//! The limit of connections of each region.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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

/// The connections that each region with a connection may still open.
#[derive(Debug, Default)]
pub(super) struct ConnectionLimiter(Mutex<BTreeMap<Option<Arc<str>>, Arc<Semaphore>>>);

/// One counted connection; dropping it ends the count.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    pub(super) connection: VerifiedConnection,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionLimiter {
    pub(super) fn acquire(
        &self,
        region: Option<Arc<str>>,
        from: SocketAddr,
    ) -> Result<ConnectionPermit, &'static str> {
        let mut regions = self.0.lock();
        let permits = CONNECTIONS_PER_REGION_MAX + REJECTED_PER_REGION_MAX;
        // Only regions with a connection take memory.
        regions.retain(|_, left| left.available_permits() < permits);
        let left = regions.entry(region.clone());
        let left = left.or_insert_with(|| Arc::new(Semaphore::new(permits)));
        let permit = Arc::clone(left).try_acquire_owned();
        let permit = permit.map_err(|_| "the region has far too many connections")?;
        let is_within_limit = left.available_permits() >= REJECTED_PER_REGION_MAX;
        Ok(ConnectionPermit {
            connection: VerifiedConnection {
                region,
                from,
                is_within_limit,
            },
            _permit: permit,
        })
    }
}
