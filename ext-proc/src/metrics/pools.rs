//! Metrics of pools, their replicas and their peers, read from the routing cores at each scrape.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use isotherm_router::{
    Availability, Counters, PeerAvailability, PeerStatus, PoolEstimates, ReplicaStatus, Stats, Time,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::page::{Page, count, counters, flag};
use crate::pool::{Pool, PoolRegistry, sources};

/// Reads every pool of a registry at each scrape.
#[derive(Debug)]
pub struct PoolCollector(
    /// The pools.
    pub Arc<PoolRegistry>,
);

impl Collector for PoolCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let pools = self.0.pools();
        let pools: Vec<_> = pools.iter().map(|pool| PoolSnapshot::of(pool)).collect();
        encode(encoder, &pools)
    }
}

/// A pool's state at the moment of a scrape.
struct PoolSnapshot {
    pool: Arc<str>,
    stats: Stats,
    estimates: PoolEstimates,
    replicas: Vec<ReplicaStatus>,
    peers: Vec<PeerStatus>,
    /// Home region of each adopted replica.
    adopted: Vec<Arc<str>>,
    are_sources_up: bool,
    now: Time,
}

impl PoolSnapshot {
    fn of(pool: &Pool) -> Self {
        Self {
            pool: Arc::clone(pool.name()),
            stats: pool.stats(),
            estimates: pool.estimates(),
            replicas: pool.replicas(),
            peers: pool.peers(),
            adopted: pool.adopted().into_values().collect(),
            are_sources_up: pool.source_problem().is_none(),
            now: pool.clock().now(),
        }
    }
}

fn encode(encoder: DescriptorEncoder<'_>, pools: &[PoolSnapshot]) -> fmt::Result {
    let mut page = Page::new(encoder);
    for (name, help, label, read) in LABELLED_COUNTERS {
        let samples = pools.iter().flat_map(|pool| {
            let samples = read(&pool.stats.counters).into_iter();
            samples.map(|(value, n)| ([("pool", &*pool.pool), (label, value)], n))
        });
        page.counters(name, help, samples)?;
    }
    for (name, help, read) in COUNTERS {
        page.counters(name, help, each_pool(pools, |stats| read(&stats.counters)))?;
    }
    page.counters(
        "index_evicted",
        "Pairs of prefix and replica that the prefix index evicted to stay within its memory",
        each_pool(pools, |stats| stats.index.evicted),
    )?;
    for (name, help, read) in GAUGES {
        page.gauges(name, help, each_pool(pools, read))?;
    }
    encode_learned(&mut page, pools)?;
    page.gauges(
        "sources_up",
        "1 while the sources of the pool's replicas (DNS name, Kubernetes) answer; the admin interface has the problem",
        pools.iter().map(|pool| ([("pool", &*pool.pool)], flag(pool.are_sources_up))),
    )?;
    encode_replicas(&mut page, pools)?;
    encode_peers(&mut page, pools)
}

/// A family with one sample per pool: its name, its help, and how to read its value.
type Family<T, V> = (&'static str, &'static str, fn(&T) -> V);

/// A family with one sample per pool and value of a label.
type LabelledFamily = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Counters) -> Vec<(&'static str, u64)>,
);

const LABELLED_COUNTERS: [LabelledFamily; 4] = [
    (
        "decisions",
        "Requests dispatched to a replica, by the reason for the selection",
        "reason",
        |c| by_reason(&c.decisions),
    ),
    ("rejects", "Requests rejected, by reason", "reason", |c| {
        by_reason(&c.rejects)
    }),
    (
        "aborted",
        "Clients that disconnected, by the phase of their request: waiting, in_flight. Without the response filter \
         every response ends as the latter: Envoy ends both in the same way",
        "phase",
        |c| {
            vec![
                ("waiting", c.aborted_waiting),
                ("in_flight", c.aborted_in_flight),
            ]
        },
    ),
    (
        "finished",
        "Responses that ended, by result: ok (status 2xx), failed",
        "result",
        |c| vec![("ok", c.finished_ok), ("failed", c.finished_failed)],
    ),
];

const COUNTERS: &[Family<Counters, u64>] = counters! {
    arrived: "Requests that need a replica",
    queued: "Requests that waited in the queue",
    prefills: "Dispatched requests whose prompt a prefill replica computes",
    retried_elsewhere: "Responses of a replica other than the selected one",
    predicted_cached_tokens: "Prompt tokens that the prefix index predicted to be cached, over requests whose engine \
         reports its cache hits",
    measured_cached_tokens: "Prompt tokens that engines found in their caches, over the same requests",
    prediction_error_tokens: "Sum of the absolute differences of predicted and measured cached tokens",
    measured_prompt_tokens: "Prompt tokens of the same requests",
    false_hits: "Predicted cache hits that did not happen and corrected the prefix index",
    forwarded_prompt_tokens: "Prompt tokens of forwarded requests whose engine reports its cache hits",
    forwarded_cached_tokens: "Prompt tokens that engines found in their caches, over the same forwarded requests",
    forwarded_in: "Requests that other regions forwarded to this one",
    forwarded_in_rejected: "Requests of other regions that this region rejected because its queue was too long",
    placements_sent: "Placements (a prefix dispatched to a replica) sent to siblings",
    placements_received: "Placements received from siblings",
    placements_unattached: "Received placements that continue a prefix unknown to this service",
    placements_dropped: "Placements that were not sent to siblings in time",
    adapter_requests: "Requests for an adapter (LoRA) that were dispatched",
    engine_restarts: "Restarts of engines, as the counters of their metrics pages showed",
    adapter_loads: "Requests for an adapter that were dispatched to a replica believed not to hold it",
    replicas_refused: "Replicas left out because the pool has as many as it may have",
};

const GAUGES: [Family<Stats, f64>; 9] = [
    ("queue_length", "Requests in the queue", |s| {
        count(s.queue_length)
    }),
    (
        "queue_oldest_wait_seconds",
        "Time that the oldest queued request has waited",
        |s| s.oldest_wait.as_secs_f64(),
    ),
    ("in_flight", "Requests dispatched and not finished", |s| {
        count(s.in_flight)
    }),
    (
        "available_replicas",
        "Replicas that accept another request now",
        |s| count(s.available_replicas),
    ),
    (
        "available_prefillers",
        "Prefill replicas that accept another prompt now",
        |s| count(s.available_prefillers),
    ),
    (
        "index_nodes",
        "Distinct prefixes in the prefix index",
        |s| count(s.index.nodes),
    ),
    (
        "index_entries",
        "Pairs of prefix and replica in the prefix index",
        |s| count(s.index.entries),
    ),
    ("index_bytes", "Memory of the prefix index", |s| {
        count(s.index.bytes)
    }),
    (
        "peer_index_bytes",
        "Memory of the prefix index over peers",
        |s| count(s.peer_index.bytes),
    ),
];

const LEARNED_GAUGES: [Family<PoolEstimates, f64>; 5] = [
    (
        "learned_prompt_token_seconds",
        "Time in which a replica computes a prompt token, learned or presumed; isotherm_signal has the source",
        |e| e.prompt_token_s,
    ),
    (
        "learned_first_token_seconds",
        "Time to first token of a prompt without uncached tokens, learned or presumed",
        |e| e.first_token_s,
    ),
    (
        "learned_output_token_seconds",
        "Time in which a replica writes an output token of its only request, learned or presumed",
        |e| e.output_token_s,
    ),
    (
        "learned_token_bytes",
        "Prompt bytes in a token, learned or presumed",
        |e| e.bytes_per_token,
    ),
    (
        "learned_output_tokens",
        "Mean length of an answer in tokens, learned or presumed",
        |e| e.output_tokens,
    ),
];

const REPLICA_GAUGES: [Family<ReplicaStatus, Option<f64>>; 8] = [
    (
        "replica_outstanding",
        "Requests sent to the replica and not finished",
        |r| Some(f64::from(r.outstanding)),
    ),
    (
        "replica_of_others",
        "Requests of other services at the replica, by what siblings told and its gauges showed",
        |r| Some(f64::from(r.of_others)),
    ),
    (
        "replica_pending",
        "Requests in the replica's own queue at its last probe",
        |r| Some(f64::from(r.load?.pending)),
    ),
    (
        "replica_running",
        "Requests in the replica's batch at its last probe",
        |r| Some(f64::from(r.load?.running?)),
    ),
    (
        "replica_kv_usage",
        "Share of the replica's KV cache in use, from 0 to 1",
        |r| Some(f64::from(r.load?.kv_usage?)),
    ),
    (
        "replica_adapters_listed",
        "Adapters that the replica can serve, by its list of models",
        |r| Some(count(r.adapters.as_ref()?.listed.as_ref()?.len())),
    ),
    (
        "replica_adapters_loaded",
        "Adapters that the replica is believed to hold",
        |r| Some(count(r.adapters.as_ref()?.loaded.len())),
    ),
    (
        "replica_adapter_slots",
        "Adapters that the replica serves at a time",
        |r| Some(f64::from(r.adapters.as_ref()?.slots?)),
    ),
];

const PEER_COUNTERS: [Family<PeerStatus, u64>; 2] = [
    ("forwarded", "Requests forwarded to another region", |p| {
        p.forwarded
    }),
    (
        "returned",
        "Forwarded requests that came back: the other region refused them, or could not be reached",
        |p| p.returned,
    ),
];

const PEER_GAUGES: [Family<PeerStatus, Option<f64>>; 4] = [
    (
        "forwarded_in_flight",
        "Requests forwarded to another region and not finished",
        |p| Some(f64::from(p.outstanding)),
    ),
    (
        "peer_available_replicas",
        "Replicas of the peer that accept another request, by its last report",
        |p| Some(f64::from(p.report?.available)),
    ),
    (
        "peer_free_capacity",
        "Requests that the peer could start at once, by its last report",
        |p| Some(f64::from(p.report?.free_capacity)),
    ),
    (
        "peer_queue_length",
        "Requests in the peer's queue, by its last report",
        |p| Some(f64::from(p.report?.queue)),
    ),
];

fn by_reason<R: Copy + Into<&'static str>>(counts: &BTreeMap<R, u64>) -> Vec<(&'static str, u64)> {
    let counts = counts.iter();
    counts.map(|(reason, n)| ((*reason).into(), *n)).collect()
}

/// One sample per pool.
fn each_pool<V>(
    pools: &[PoolSnapshot],
    read: impl Fn(&Stats) -> V,
) -> impl Iterator<Item = ([(&'static str, &str); 1], V)> {
    let pools = pools.iter();
    pools.map(move |pool| ([("pool", &*pool.pool)], read(&pool.stats)))
}

fn encode_learned(page: &mut Page<'_>, pools: &[PoolSnapshot]) -> fmt::Result {
    for (name, help, read) in LEARNED_GAUGES {
        let samples = pools.iter();
        let samples = samples.map(|pool| ([("pool", &*pool.pool)], read(&pool.estimates)));
        page.gauges(name, help, samples)?;
    }
    page.gauges(
        "signal",
        "1 for the source of each quantity that a pool learns: usage (of answers), counters (of engines), first_tokens, \
         answers (their duration), presumed (nothing)",
        pools.iter().flat_map(|pool| {
            sources(&pool.estimates.signals).map(|(quantity, source)| {
                let quantity = ("quantity", quantity);
                let source = ("source", source.into());
                ([("pool", &*pool.pool), quantity, source], 1.0)
            })
        }),
    )
}

fn encode_replicas(page: &mut Page<'_>, pools: &[PoolSnapshot]) -> fmt::Result {
    let each = || {
        pools.iter().flat_map(|pool| {
            let replicas = pool.replicas.iter();
            replicas.map(move |r| (pool, r, [("pool", &*pool.pool), ("replica", &*r.name)]))
        })
    };
    for (name, help, read) in REPLICA_GAUGES {
        let samples = each().filter_map(|(_, replica, labels)| Some((labels, read(replica)?)));
        page.gauges(name, help, samples)?;
    }
    page.gauges(
        "replica_probe_age_seconds",
        "Age of the replica's last successful probe",
        each().filter_map(|(pool, replica, labels)| {
            let age = pool.now.since(replica.probed?);
            Some((labels, age.as_secs_f64()))
        }),
    )?;
    page.gauges(
        "replica_has_metrics",
        "1 unless the replica answers probes without metrics; the number of its outstanding requests then decides whether it \
         is available",
        each().map(|(_, replica, labels)| (labels, flag(replica.has_metrics))),
    )?;
    page.gauges(
        "replica_several_processes",
        "1 while the counters of the replica's metrics page are those of several processes in turn; nothing is then learned \
         from them, and they show no restart",
        each().map(|(_, replica, labels)| (labels, flag(replica.has_several_processes))),
    )?;
    page.gauges(
        "replica_available",
        "1 while the replica accepts another request; state is available or the reason why not (failing: its requests \
         fail, whatever its probes report), role the part of a request that it serves: both, prefill, decode",
        each().map(|(_, replica, [pool, name])| {
            let role = ("role", replica.role.as_ref());
            let state = ("state", replica.availability.as_ref());
            let is_available = replica.availability == Availability::Available;
            ([pool, name, role, state], flag(is_available))
        }),
    )
}

fn encode_peers(page: &mut Page<'_>, pools: &[PoolSnapshot]) -> fmt::Result {
    let each = || {
        pools.iter().flat_map(|pool| {
            let peers = pool.peers.iter();
            peers.map(|peer| (peer, [("pool", &*pool.pool), ("region", &*peer.name)]))
        })
    };
    for (name, help, read) in PEER_COUNTERS {
        page.counters(
            name,
            help,
            each().map(|(peer, labels)| (labels, read(peer))),
        )?;
    }
    for (name, help, read) in PEER_GAUGES {
        let samples = each().filter_map(|(peer, labels)| Some((labels, read(peer)?)));
        page.gauges(name, help, samples)?;
    }
    page.gauges(
        "peer_available",
        "1 while requests are forwarded to the peer; state is available or the reason why not",
        each().map(|(peer, [pool, region])| {
            let state = ("state", peer.availability.as_ref());
            let is_available = peer.availability == PeerAvailability::Available;
            ([pool, region, state], flag(is_available))
        }),
    )?;
    let mut adopted: BTreeMap<_, usize> = each().map(|(_, labels)| (labels, 0)).collect();
    for pool in pools {
        for region in &pool.adopted {
            let labels = [("pool", &*pool.pool), ("region", &**region)];
            *adopted.entry(labels).or_default() += 1;
        }
    }
    page.gauges(
        "adopted_replicas",
        "Replicas of another region that this region has adopted",
        adopted.into_iter().map(|(labels, n)| (labels, count(n))),
    )
}
