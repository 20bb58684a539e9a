//! Probes every replica of a pool, one task for each.
//!
//! One task a replica: a loop over all replicas was rejected, since one that hangs would delay the news of all
//! others by its timeout. A report carries the time at which the probe was *sent*: what was pushed after that is
//! not in it, and the core must know.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use isotherm_router::ReplicaId;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;

use super::fetch::Fetcher;
use super::replica::ReplicaProbe;
use super::schedule::ProbeSchedule;
use super::threads::Threads;
use crate::config::PoolConfig;
use crate::metrics::ProbeMetrics;
use crate::metrics::probe::PoolProbeMetrics;
use crate::pool::Pool;
use crate::tasks::KeyedTasks;

/// How far pauses are spread around the interval.
const JITTER: std::ops::Range<f64> = 0.9..1.1;

/// Probes the replicas of a pool, until the pool is gone.
pub(super) async fn follow(
    pool: Weak<Pool>,
    fetcher: Fetcher,
    metrics: ProbeMetrics,
    threads: Arc<Threads>,
) {
    let Some((name, mut members)) = pool
        .upgrade()
        .map(|pool| (Arc::clone(pool.name()), pool.members()))
    else {
        return;
    };
    let metrics = Arc::new(metrics.pool(&name));
    let mut tasks = KeyedTasks::new();
    loop {
        let current = Arc::clone(&members.borrow_and_update());
        tasks.keep(|id| current.iter().any(|member| member.id == *id));
        for member in current.iter() {
            tasks.ensure(member.id, || {
                let replica = (member.id, member.addr);
                let metrics = Arc::clone(&metrics);
                let work = probe(pool.clone(), replica, fetcher.clone(), metrics);
                threads.spawn(member.id, work)
            });
        }
        if members.changed().await.is_err() {
            return;
        }
    }
}

/// Probes one replica until its task is stopped.
async fn probe(
    pool: Weak<Pool>,
    (id, addr): (ReplicaId, SocketAddr),
    fetcher: Fetcher,
    metrics: Arc<PoolProbeMetrics>,
) {
    let Some((clock, mut config)) = pool.upgrade().map(|pool| (pool.clock(), pool.config())) else {
        return;
    };
    let mut replica = ReplicaProbe::new(addr);
    let mut schedule = ProbeSchedule::default();
    // The standard library keys every hash map differently.
    let mut random = SmallRng::seed_from_u64(RandomState::new().hash_one(addr));
    loop {
        let current = Arc::clone(&config.borrow_and_update());
        let start = Instant::now();
        let result = replica.probe(&fetcher, &current).await;
        let took = start.elapsed();
        metrics.observe(took, result.as_ref().err());
        let Some(pool) = pool.upgrade() else {
            return;
        };
        match result {
            Ok(load) => {
                if schedule.succeeded() {
                    tracing::info!(pool = %pool.name(), replica = %addr, "replica answers again");
                }
                pool.probed(id, load, clock.time_of(start));
            }
            Err(error) => {
                if schedule.failed() {
                    tracing::warn!(pool = %pool.name(), replica = %addr, %error, "probe failed");
                }
                pool.probe_failed(id);
            }
        }
        drop(pool);
        let jitter = random.random_range(JITTER);
        let pause = schedule.pause(current.probe.interval, took, jitter);
        if wait(pause, &mut config).await {
            replica.forget();
        }
    }
}

/// Waits for the next probe; a changed configuration is applied at once, and is worth a `true`.
async fn wait(pause: std::time::Duration, config: &mut watch::Receiver<Arc<PoolConfig>>) -> bool {
    tokio::select! {
        () = tokio::time::sleep(pause) => false,
        // With the pool gone there is nothing to wait for; the caller notices.
        changed = config.changed() => changed.is_ok(),
    }
}
