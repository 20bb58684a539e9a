//! The page's figures that the routing cores keep: read when somebody scrapes.

use std::fmt;
use std::sync::Arc;

use isotherm_router::Counters;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::forwarding;
use super::page::{Page, Snapshot, count};
use crate::pool::PoolRegistry;

/// Reads every pool of a registry at each scrape.
#[derive(Debug)]
pub struct PoolCollector(Arc<PoolRegistry>);

impl PoolCollector {
    /// A collector over `pool_registry`.
    #[must_use]
    pub fn new(pool_registry: Arc<PoolRegistry>) -> Self {
        Self(pool_registry)
    }
}

impl Collector for PoolCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let pools = self.0.pools();
        let pools: Vec<_> = pools.iter().map(|pool| Snapshot::of(pool)).collect();
        let mut page = Page::new(encoder);
        requests(&mut page, &pools)?;
        tokens(&mut page, &pools)?;
        state(&mut page, &pools)?;
        replicas(&mut page, &pools)?;
        forwarding::encode(&mut page, &pools)
    }
}

fn requests(page: &mut Page<'_>, pools: &[Snapshot]) -> fmt::Result {
    page.counters("decisions", "Requests dispatched", pools, |s| {
        let decisions = s.stats.counters.decisions.iter();
        decisions
            .map(|(reason, count)| (Some(("reason", reason.as_str())), *count))
            .collect()
    })?;
    page.counters("rejects", "Requests refused", pools, |s| {
        let rejects = s.stats.counters.rejects.iter();
        rejects
            .map(|(reason, count)| (Some(("reason", reason.as_str())), *count))
            .collect()
    })?;
    page.counters("aborted", "Clients that went away", pools, |s| {
        let Counters {
            aborted_waiting,
            aborted_in_flight,
            ..
        } = s.stats.counters;
        vec![
            (Some(("phase", "waiting")), aborted_waiting),
            (Some(("phase", "in_flight")), aborted_in_flight),
        ]
    })?;
    page.counters("finished", "Responses that ended", pools, |s| {
        let Counters {
            finished_ok,
            finished_failed,
            ..
        } = s.stats.counters;
        vec![
            (Some(("result", "ok")), finished_ok),
            (Some(("result", "failed")), finished_failed),
        ]
    })?;
    page.counter("arrived", "Requests that wanted a replica", pools, |c| {
        c.arrived
    })?;
    page.counter("queued", "Requests that had to wait", pools, |c| c.queued)?;
    page.counter(
        "retried_elsewhere",
        "Responses of a replica other than the chosen one",
        pools,
        |c| c.retried_elsewhere,
    )
}

fn tokens(page: &mut Page<'_>, pools: &[Snapshot]) -> fmt::Result {
    page.counter(
        "predicted_cached_tokens",
        "Prompt tokens that the index took for cached",
        pools,
        |c| c.predicted_cached_tokens,
    )?;
    page.counter(
        "measured_cached_tokens",
        "Prompt tokens that engines found in their caches, same requests",
        pools,
        |c| c.measured_cached_tokens,
    )?;
    page.counter(
        "prediction_error_tokens",
        "Sum of the absolute differences of predicted and measured",
        pools,
        |c| c.prediction_error_tokens,
    )?;
    page.counter(
        "measured_prompt_tokens",
        "Prompt tokens, same requests",
        pools,
        |c| c.measured_prompt_tokens,
    )?;
    page.counter(
        "false_hits",
        "Predicted hits that did not happen and corrected the index",
        pools,
        |c| c.false_hits,
    )
}

fn state(page: &mut Page<'_>, pools: &[Snapshot]) -> fmt::Result {
    page.gauge("queue_length", "Requests that wait now", pools, |s| {
        count(s.queue_length)
    })?;
    page.gauge(
        "queue_oldest_wait_seconds",
        "How long the oldest of them has waited",
        pools,
        |s| s.oldest_wait.as_secs_f64(),
    )?;
    page.gauge(
        "in_flight",
        "Requests dispatched and not finished",
        pools,
        |s| count(s.in_flight),
    )?;
    page.gauge(
        "available_replicas",
        "Replicas that would take a request now",
        pools,
        |s| count(s.available_replicas),
    )?;
    page.gauge(
        "index_nodes",
        "Distinct prefixes in the index",
        pools,
        |s| count(s.index.nodes),
    )?;
    page.gauge(
        "index_entries",
        "Pairs of prefix and replica in the index",
        pools,
        |s| count(s.index.entries),
    )?;
    page.gauge("index_bytes", "Memory of the index", pools, |s| {
        count(s.index.bytes)
    })?;
    page.counters(
        "index_evicted",
        "Pairs forgotten for want of room",
        pools,
        |s| vec![(None, s.stats.index.evicted)],
    )
}

fn replicas(page: &mut Page<'_>, pools: &[Snapshot]) -> fmt::Result {
    page.replicas(
        "replica_outstanding",
        "Requests sent to it and not finished",
        pools,
        |_, r| Some(f64::from(r.outstanding)),
    )?;
    page.replicas(
        "replica_pending",
        "Requests in its own queue at its last probe",
        pools,
        |_, r| r.load.map(|load| f64::from(load.pending)),
    )?;
    page.replicas(
        "replica_running",
        "Requests in its batch at its last probe",
        pools,
        |_, r| r.load.and_then(|load| load.running).map(f64::from),
    )?;
    page.replicas(
        "replica_kv_usage",
        "Share of its KV cache in use",
        pools,
        |_, r| r.load.and_then(|load| load.kv_usage).map(f64::from),
    )?;
    page.replicas(
        "replica_probe_age_seconds",
        "Age of its last good probe",
        pools,
        |now, r| r.probed.map(|sent| now.since(sent).as_secs_f64()),
    )?;
    page.availability(pools)
}
