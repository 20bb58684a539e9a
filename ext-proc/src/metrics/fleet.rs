//! The page's figures that the routing cores keep: read when somebody scrapes.

use std::fmt;
use std::sync::Arc;

use isotherm_router::{Availability, Counters, ReplicaStatus, Stats, Time};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::driver::{Fleet, Pool};

/// Reads every pool of a fleet at each scrape.
#[derive(Debug)]
pub struct FleetCollector(Arc<Fleet>);

impl FleetCollector {
    /// A collector over `fleet`.
    #[must_use]
    pub fn new(fleet: Arc<Fleet>) -> Self {
        Self(fleet)
    }
}

/// One pool at the moment of the scrape.
struct Snapshot {
    pool: Arc<str>,
    stats: Stats,
    replicas: Vec<ReplicaStatus>,
    now: Time,
}

impl Snapshot {
    fn of(pool: &Pool) -> Self {
        Self {
            pool: Arc::clone(pool.name()),
            stats: pool.stats(),
            replicas: pool.replicas(),
            now: pool.clock().now(),
        }
    }
}

impl Collector for FleetCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let pools = self.0.pools();
        let pools: Vec<_> = pools.iter().map(|pool| Snapshot::of(pool)).collect();
        let mut page = Page { encoder };
        requests(&mut page, &pools)?;
        tokens(&mut page, &pools)?;
        state(&mut page, &pools)?;
        replicas(&mut page, &pools)
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
        "served_elsewhere",
        "Responses of another replica than the chosen one",
        pools,
        |c| c.served_elsewhere,
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

/// Writes one metric after the other.
struct Page<'a> {
    encoder: DescriptorEncoder<'a>,
}

type Label = (&'static str, &'static str);

impl Page<'_> {
    fn counters(
        &mut self,
        name: &str,
        help: &str,
        pools: &[Snapshot],
        read: impl Fn(&Snapshot) -> Vec<(Option<Label>, u64)>,
    ) -> fmt::Result {
        let mut metric = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for pool in pools {
            for (label, value) in read(pool) {
                let labels = Vec::from_iter([("pool", &*pool.pool)].into_iter().chain(label));
                metric
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            }
        }
        Ok(())
    }

    fn counter(
        &mut self,
        name: &str,
        help: &str,
        pools: &[Snapshot],
        read: impl Fn(&Counters) -> u64,
    ) -> fmt::Result {
        self.counters(name, help, pools, |s| vec![(None, read(&s.stats.counters))])
    }

    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        pools: &[Snapshot],
        read: impl Fn(&Stats) -> f64,
    ) -> fmt::Result {
        let mut metric = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for pool in pools {
            metric
                .encode_family(&[("pool", &*pool.pool)])?
                .encode_gauge(&read(&pool.stats))?;
        }
        Ok(())
    }

    fn replicas(
        &mut self,
        name: &str,
        help: &str,
        pools: &[Snapshot],
        read: impl Fn(Time, &ReplicaStatus) -> Option<f64>,
    ) -> fmt::Result {
        let mut metric = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for pool in pools {
            for replica in &pool.replicas {
                if let Some(value) = read(pool.now, replica) {
                    metric
                        .encode_family(&[("pool", &*pool.pool), ("replica", &replica.name)])?
                        .encode_gauge(&value)?;
                }
            }
        }
        Ok(())
    }

    fn availability(&mut self, pools: &[Snapshot]) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(
            "replica_available",
            "1 when it takes another request; the label says why not",
            None,
            MetricType::Gauge,
        )?;
        for pool in pools {
            for replica in &pool.replicas {
                let labels = [
                    ("pool", &*pool.pool),
                    ("replica", &replica.name),
                    ("why", replica.availability.as_str()),
                ];
                let available = replica.availability == Availability::Available;
                metric
                    .encode_family(&labels)?
                    .encode_gauge(&i64::from(available))?;
            }
        }
        Ok(())
    }
}

/// Gauges are floating point on the page; none of these counts comes near 2^53.
#[expect(
    clippy::cast_precision_loss,
    reason = "none of these counts comes near 2^53"
)]
fn count(value: usize) -> f64 {
    value as f64
}
