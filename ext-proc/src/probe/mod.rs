//! Probes: the service reads each replica's load from its metrics page, several times a second.
//!
//! Selective pushing (SkyLB 3.3) needs to know whether a replica has requests that it cannot start yet. Each engine
//! reports that under metric names of its own (`engine`). A response that carries the engine's load report counts as a
//! probe as well; the filter reads it.
//!
//! The probe reads the engine's counters from the same page: tokens, cache hits, and the time of each phase of requests
//! (`counter_series`). The router learns from them what answers do not tell.
//!
//! The list of models of a replica names the adapters that it can serve (`models`), and its metrics page the adapters of its
//! requests (`adapter_series`).
//!
//! Rejected: light load endpoints. vLLM's counts everything in flight, so it does not show how many requests wait. The
//! metrics pages also report the size of the cache.

mod adapter_series;
mod client;
mod connections;
mod counter_series;
mod counters;
mod engine;
mod exposition;
mod fetch;
mod load;
mod load_probe;
mod models;
mod news;
mod prober;
mod schedule;
mod stretch;
#[cfg(test)]
mod tests;
mod threads;

use std::io;
use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::descriptors;
use crate::http_client::HttpClient;
use crate::metrics::ProbeMetrics;
use crate::pool::{PoolRegistry, for_each_pool};
use connections::ProbeConnections;
use threads::ProbeThreads;

pub(crate) use adapter_series::ReportedAdapters;
pub(crate) use fetch::ProbeError;
pub(crate) use load::parse_page;
pub(crate) use models::{ListedModels, parse as parse_model_list};

/// Probes every replica of every pool, across reloads, until the registry is dropped or the task is aborted.
/// Fails when no thread can be started.
pub fn spawn(pools: &PoolRegistry, metrics: ProbeMetrics) -> io::Result<JoinHandle<()>> {
    let http = HttpClient::new();
    let threads = Arc::new(ProbeThreads::start()?);
    let connections = ProbeConnections::new(descriptors::limit());
    Ok(for_each_pool(pools, "probes", move |pool| {
        let shared = (Arc::clone(&threads), Arc::clone(&connections));
        prober::probe_pool(pool, http.clone(), metrics.clone(), shared)
    }))
}
