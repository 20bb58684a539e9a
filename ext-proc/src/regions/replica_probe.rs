//! Probes replicas of a silent region.
//!
//! A silent region may be dead or partitioned. When its replicas answer, the network to it works. Any response to a probe
//! counts, whatever its status; a refused connection does not.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use isotherm_regions::Event;
use isotherm_router::PeerId;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::RegionsDriver;
use crate::http_client::HttpClient;
use crate::probe::is_alive;

/// Limit of concurrent probes per region.
const ADDRESSES_MAX: usize = 8;
/// Limit of concurrent probes.
const PROBES_MAX: usize = 64;
/// Intervals that a replica has to answer.
const TIMEOUT_INTERVALS: u32 = 3;

/// Probes replicas; clones share the limit of concurrent probes.
#[derive(Clone, Debug)]
pub(super) struct ReplicaProber {
    http: HttpClient,
    permits: Arc<Semaphore>,
}

impl ReplicaProber {
    pub(super) fn new() -> Self {
        Self {
            http: HttpClient::new(),
            permits: Arc::new(Semaphore::new(PROBES_MAX)),
        }
    }

    /// Probes replicas of `peer` once an interval, until the task is aborted.
    pub(super) async fn run(
        self,
        driver: Weak<RegionsDriver>,
        peer: PeerId,
        addresses: Vec<Arc<str>>,
        interval: Duration,
    ) {
        let addresses: Vec<SocketAddr> = addresses
            .iter()
            .filter_map(|address| address.parse().ok())
            .take(ADDRESSES_MAX)
            .collect();
        loop {
            let next = Instant::now() + interval;
            let Some(clock) = driver.upgrade().map(|driver| driver.clock()) else {
                return;
            };
            let sent = clock.now();
            let any_answered = self.any(&addresses, interval * TIMEOUT_INTERVALS).await;
            let Some(driver) = driver.upgrade() else {
                return;
            };
            driver.handle(Event::ReplicasProbed {
                peer,
                sent,
                any_answered,
            });
            drop(driver);
            tokio::time::sleep_until(next).await;
        }
    }

    /// Whether any replica answers in time.
    async fn any(&self, addresses: &[SocketAddr], timeout: Duration) -> bool {
        let probes = addresses.iter().map(|address| async {
            // The semaphore is never closed.
            let _permit = self.permits.acquire().await;
            is_alive(&self.http, *address, timeout).await
        });
        let mut probes: FuturesUnordered<_> = probes.collect();
        let any = async {
            while let Some(answered) = probes.next().await {
                if answered {
                    return true;
                }
            }
            false
        };
        // The core needs the result in time, also while other probes hold all permits.
        tokio::time::timeout(timeout, any).await.unwrap_or(false)
    }
}
