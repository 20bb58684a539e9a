//! The limits of connections.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The most connections of one region: many services, each with a few. Callers without an allowed region share one count, and
/// so do all callers without TLS.
const CONNECTIONS_PER_REGION_MAX: usize = 128;
/// The most further connections, whose requests the service refuses with a status. A caller whose connection is cut without
/// a status takes this service for dead.
const REFUSED_PER_REGION_MAX: usize = 64;
/// The most connections in all.
const CONNECTIONS_MAX: usize = 2048;

/// The open connections of each region that has one: the holders of an [`Arc`], and the map itself.
#[derive(Debug, Default)]
pub(super) struct ConnectionLimiter(Mutex<BTreeMap<Option<Arc<str>>, Arc<()>>>);

/// One counted connection; dropping it ends the count.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    /// Whether the connection is within its region's limit.
    pub(super) is_within_limit: bool,
    _count: Arc<()>,
}

impl ConnectionLimiter {
    /// Counts a connection of a region; `None` for a caller without an allowed region, and without TLS.
    /// Fails beyond a limit.
    pub(super) fn acquire(
        &self,
        region: Option<Arc<str>>,
    ) -> Result<ConnectionPermit, &'static str> {
        let mut regions = self.0.lock();
        regions.retain(|_, count| Arc::strong_count(count) > 1);
        let open = |count: &Arc<()>| Arc::strong_count(count) - 1;
        if regions.values().map(open).sum::<usize>() >= CONNECTIONS_MAX {
            return Err("all regions together have far too many connections");
        }
        let count = regions.entry(region).or_default();
        let before = open(count);
        if before >= CONNECTIONS_PER_REGION_MAX + REFUSED_PER_REGION_MAX {
            return Err("the region has far too many connections");
        }
        Ok(ConnectionPermit {
            is_within_limit: before < CONNECTIONS_PER_REGION_MAX,
            _count: Arc::clone(count),
        })
    }
}
