//! Connections of the batch API. A connection waits until its request is there; while all are taken, a new one replaces the
//! oldest that waits. A request with a key takes a place of its owner. A page of health, and a request without a key, take
//! none, so they have the connections beyond the places of owners.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::places::OwnerPlace;

/// Most requests with a key at once.
pub(super) const REQUESTS_MAX: usize = 256;
/// Connections beyond those.
const OTHER_CONNECTIONS: usize = 32;
/// Most connections at once.
const CONNECTIONS_MAX: usize = REQUESTS_MAX + OTHER_CONNECTIONS;

/// A connection that waits for its request.
#[derive(Debug)]
struct WaitingConnection {
    evicted: Arc<Notify>,
    permit: OwnedSemaphorePermit,
}

/// The waiting connections, in the order of their arrival.
type WaitingConnections = Arc<Mutex<BTreeMap<u64, WaitingConnection>>>;

/// All connections.
#[derive(Debug)]
pub(super) struct ApiConnections {
    next_number: AtomicU64,
    waiting: WaitingConnections,
    permits: Arc<Semaphore>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct ApiConnection {
    number: u64,
    waiting: WaitingConnections,
    evicted: Arc<Notify>,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    /// The place of the request's owner, until the connection ends.
    place: Mutex<Option<OwnerPlace>>,
}

impl Default for ApiConnections {
    fn default() -> Self {
        Self {
            next_number: AtomicU64::new(0),
            waiting: WaitingConnections::default(),
            permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        }
    }
}

impl ApiConnections {
    /// Adds a connection; the oldest that waits for its request makes way. `None` if every connection has a request.
    pub(super) fn add(&self) -> Option<ApiConnection> {
        let mut waiting = self.waiting.lock();
        let permit = match Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let (_, oldest) = waiting.pop_first()?;
                oldest.evicted.notify_one();
                oldest.permit
            }
        };
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let evicted = Arc::<Notify>::default();
        let connection = WaitingConnection {
            evicted: Arc::clone(&evicted),
            permit,
        };
        waiting.insert(number, connection);
        Some(ApiConnection {
            number,
            waiting: Arc::clone(&self.waiting),
            evicted,
            permit: Mutex::default(),
            place: Mutex::default(),
        })
    }
}

impl ApiConnection {
    /// Begins the connection's request. Returns whether the connection is still there.
    pub(super) fn begin(&self) -> bool {
        let Some(connection) = self.waiting.lock().remove(&self.number) else {
            return false;
        };
        *self.permit.lock() = Some(connection.permit);
        true
    }

    /// Keeps the place of the request's owner until the connection ends.
    pub(super) fn keep(&self, place: OwnerPlace) {
        *self.place.lock() = Some(place);
    }

    /// Resolves when the connection has made way for another.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for ApiConnection {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_new_connection_replaces_the_oldest_that_waits() {
        let connections = ApiConnections::default();
        let mut open: Vec<ApiConnection> = std::iter::repeat_with(|| connections.add())
            .take(CONNECTIONS_MAX)
            .map(Option::unwrap)
            .collect();
        assert!(open[0].begin());
        let newest = connections.add().unwrap();
        open[1].evicted().await;
        assert!(!open[1].begin(), "the place belongs to another");
        assert!(newest.begin());
        open.truncate(1);
        drop((open, newest));
        assert_eq!(connections.permits.available_permits(), CONNECTIONS_MAX);
    }
}
