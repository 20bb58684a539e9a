//! Connections of the admin interface: a bounded number, some of them for health alone.
//!
//! A connection waits until its request is there, then takes a place for its request or, for a page of health, none: the
//! connections beyond the requests' places are kept for health. While all connections are taken, a new one replaces the
//! oldest that still waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The most requests at once, without those for health.
const REQUESTS_MAX: usize = 64;
/// The connections that only health may use.
const HEALTH_CONNECTIONS: usize = 16;
/// The most connections at once.
const CONNECTIONS_MAX: usize = REQUESTS_MAX + HEALTH_CONNECTIONS;

/// A connection that waits for its request.
#[derive(Debug)]
struct WaitingConnection {
    evicted: Arc<Notify>,
    permit: OwnedSemaphorePermit,
}

/// The waiting connections, in the order of their arrival.
type WaitingConnections = Arc<Mutex<BTreeMap<u64, WaitingConnection>>>;

/// The places of all connections.
#[derive(Debug)]
pub(super) struct AdminConnections {
    next_number: AtomicU64,
    waiting: WaitingConnections,
    connections: Arc<Semaphore>,
    requests: Arc<Semaphore>,
}

/// The place of one connection, which is free again on drop.
#[derive(Debug)]
pub(super) struct AdminConnection {
    number: u64,
    waiting: WaitingConnections,
    evicted: Arc<Notify>,
    requests: Arc<Semaphore>,
    /// The permits of the connection and of its request, once it has one.
    permits: Mutex<Vec<OwnedSemaphorePermit>>,
}

impl Default for AdminConnections {
    fn default() -> Self {
        Self {
            next_number: AtomicU64::new(0),
            waiting: WaitingConnections::default(),
            connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
        }
    }
}

impl AdminConnections {
    /// Takes a place for a new connection; the oldest connection that waits for its request makes way.
    /// `None` if every connection has a request.
    pub(super) fn take(&self) -> Option<AdminConnection> {
        let mut waiting = self.waiting.lock();
        let permit = match Arc::clone(&self.connections).try_acquire_owned() {
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
        Some(AdminConnection {
            number,
            waiting: Arc::clone(&self.waiting),
            evicted,
            requests: Arc::clone(&self.requests),
            permits: Mutex::default(),
        })
    }
}

impl AdminConnection {
    /// Begins the connection's request. Returns whether there is a place for it; health needs none.
    pub(super) fn begin(&self, is_health: bool) -> bool {
        let Some(connection) = self.waiting.lock().remove(&self.number) else {
            return false;
        };
        let mut permits = self.permits.lock();
        permits.push(connection.permit);
        if is_health {
            return true;
        }
        let permit = Arc::clone(&self.requests).try_acquire_owned();
        permit.map(|permit| permits.push(permit)).is_ok()
    }

    /// Resolves when the connection has made way for another.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for AdminConnection {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_new_connection_replaces_the_oldest_that_waits() {
        let places = AdminConnections::default();
        let mut taken: Vec<_> = (0..CONNECTIONS_MAX).filter_map(|_| places.take()).collect();
        assert_eq!(taken.len(), CONNECTIONS_MAX);
        assert!(taken[0].begin(true));
        let newest = places.take().unwrap();
        taken[1].evicted().await;
        assert!(!taken[1].begin(true), "the place belongs to another");
        assert!(newest.begin(true));
        taken.truncate(1);
        assert_eq!(places.connections.available_permits(), CONNECTIONS_MAX - 2);
        drop((taken, newest));
        assert_eq!(places.connections.available_permits(), CONNECTIONS_MAX);
    }

    #[test]
    fn requests_leave_connections_for_health() {
        let places = AdminConnections::default();
        let requests: Vec<_> = (0..REQUESTS_MAX).filter_map(|_| places.take()).collect();
        assert!(requests.iter().all(|place| place.begin(false)));
        assert!(!places.take().unwrap().begin(false));
        assert!(places.take().unwrap().begin(true));
    }

    #[test]
    fn a_connection_is_refused_when_none_waits() {
        let places = AdminConnections::default();
        let taken: Vec<_> = (0..CONNECTIONS_MAX).filter_map(|_| places.take()).collect();
        assert!(taken.iter().all(|place| place.begin(true)));
        assert!(places.take().is_none());
    }
}
