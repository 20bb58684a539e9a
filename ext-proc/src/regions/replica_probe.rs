//! Asks replicas of a region that fell silent whether they are there.
//!
//! A region that cannot be heard may be dead, or only cut off. Its replicas tell: when they answer, the way there works,
//! so it is its service that is gone. Any answer to a probe will do, whatever its status; a connection that is refused
//! is none, since it says nothing of what a request would find.

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
use crate::probe::LivenessProbe;

/// How many replicas of one region are asked at a time.
const ADDRESSES_MAX: usize = 8;
/// How many are asked at a time in all.
const PROBES_MAX: usize = 64;
/// How many intervals a replica has to answer.
const PATIENCE_INTERVALS: u32 = 3;

/// What all witnesses share.
#[derive(Clone, Debug)]
pub(super) struct ReplicaProber {
    probe: LivenessProbe,
    places: Arc<Semaphore>,
}

impl ReplicaProber {
    pub(super) fn new() -> Self {
        Self {
            probe: LivenessProbe::new(),
            places: Arc::new(Semaphore::new(PROBES_MAX)),
        }
    }

    /// Asks replicas of `peer` with each interval, until the task is aborted.
    pub(super) async fn ask(
        self,
        shared: Weak<RegionsDriver>,
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
            let Some(clock) = shared.upgrade().map(|shared| shared.clock()) else {
                return;
            };
            let sent = clock.now();
            let alive = self.any(&addresses, interval * PATIENCE_INTERVALS).await;
            let Some(shared) = shared.upgrade() else {
                return;
            };
            shared.handle(Event::ReplicasProbed {
                peer,
                sent,
                any_answered: alive,
            });
            drop(shared);
            tokio::time::sleep_until(next).await;
        }
    }

    /// Whether any of them answers.
    async fn any(&self, addresses: &[SocketAddr], patience: Duration) -> bool {
        let probes = addresses.iter().map(|address| async {
            // The semaphore is never closed.
            let _place = self.places.acquire().await;
            self.probe.is_alive(*address, patience).await
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
        // Also where many others are being asked, the core must hear in time.
        tokio::time::timeout(patience, any).await.unwrap_or(false)
    }
}
