//! The connections of probes, within the descriptors that they may take.
//!
//! A replica keeps its connection from probe to probe. Where there are more replicas than descriptors, each probe opens a connection and
//! closes it, and a bounded number of probes is under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::descriptors;

/// The descriptors that all probes share.
#[derive(Debug)]
pub(super) struct ProbeConnections {
    limit: u64,
    replicas: AtomicU64,
    under_way: Arc<Semaphore>,
    has_warned: AtomicBool,
}

/// A replica that is probed.
#[derive(Debug)]
pub(super) struct ProbedReplica(Arc<ProbeConnections>);

impl ProbeConnections {
    /// Shares the descriptors that a limit leaves to probes.
    pub(super) fn new(limit: u64) -> Arc<Self> {
        let under_way = usize::try_from(descriptors::for_probes(limit)).unwrap_or(usize::MAX);
        Arc::new(Self {
            limit,
            replicas: AtomicU64::new(0),
            under_way: Arc::new(Semaphore::new(under_way.min(Semaphore::MAX_PERMITS))),
            has_warned: AtomicBool::new(false),
        })
    }

    /// Counts a replica until the result is dropped.
    pub(super) fn add_replica(self: &Arc<Self>) -> ProbedReplica {
        let replicas = self.replicas.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(advice) = descriptors::advice(replicas, self.limit)
            && !self.has_warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(advice, "too few file descriptors");
        }
        ProbedReplica(Arc::clone(self))
    }
}

impl ProbedReplica {
    /// Whether the replica keeps its connection until the next probe.
    pub(super) fn keeps_connection(&self) -> bool {
        let replicas = self.0.replicas.load(Ordering::Relaxed);
        replicas <= descriptors::for_probes(self.0.limit)
    }

    /// Waits until another probe may be under way.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        Arc::clone(&self.0.under_way).acquire_owned().await.ok()
    }
}

impl Drop for ProbedReplica {
    fn drop(&mut self) {
        self.0.replicas.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn replicas_keep_their_connections_while_the_descriptors_suffice() {
        let connections = ProbeConnections::new(100);
        let mut replicas = Vec::from_iter((0..36).map(|_| connections.add_replica()));
        assert!(replicas[0].keeps_connection());
        replicas.push(connections.add_replica());
        assert!(!replicas[0].keeps_connection());
        let mut under_way = Vec::new();
        for replica in &replicas[..36] {
            under_way.push(replica.turn().await.unwrap());
        }
        assert_eq!(connections.under_way.available_permits(), 0);
        replicas.pop();
        assert!(replicas[0].keeps_connection());
    }
}
