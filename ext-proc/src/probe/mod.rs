//! Probes: asks each replica for its load, several times a second.
//!
//! Selective pushing (SkyLB 3.3) needs to know whether a replica has requests that it cannot start yet. Engines
//! tell on their metrics pages, each in its own words ([`Engine`]); where the response carries the engine's load
//! report, that counts as a probe too and comes by another way. Light load endpoints were considered: vLLM's
//! counts everything in flight and so says nothing of what waits, and the pages tell the cache's size as well.

mod engine;
mod exposition;
mod fetch;
mod liveness;
mod load;
mod prober;
mod replica;
mod schedule;
mod threads;

use std::io;
use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::metrics::ProbeMetrics;
use crate::pool::{PoolRegistry, for_each_pool};
use fetch::Fetcher;
use threads::Threads;

pub use fetch::ProbeError;
pub(crate) use liveness::LivenessProbe;
pub use load::{PageError, detect_engine, parse_load};

/// Probes every replica of every pool, through reloads, until the pool_registry is gone or the task is aborted.
///
/// # Errors
///
/// When no thread can be started for it.
pub fn spawn(pool_registry: &PoolRegistry, metrics: ProbeMetrics) -> io::Result<JoinHandle<()>> {
    let fetcher = Fetcher::new();
    let threads = Arc::new(Threads::start()?);
    Ok(for_each_pool(pool_registry, move |pool| {
        prober::follow(pool, fetcher.clone(), metrics.clone(), Arc::clone(&threads))
    }))
}
