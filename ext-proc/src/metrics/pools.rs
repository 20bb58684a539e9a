//! Metrics of pools, their replicas and their peers, read from the routing cores at each scrape.

mod families;
mod tiers;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use isotherm_router::{
    Availability, PeerAvailability, PeerStatus, PoolEstimates, ReplicaStatus, Stats, Time,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use self::families::{
    COUNTERS, GAUGES, LABELLED_COUNTERS, LEARNED_GAUGES, PEER_COUNTERS, PEER_GAUGES,
    REPLICA_GAUGES, TENANT_COUNTERS, TENANT_GAUGES,
};
use self::tiers::TierSnapshot;
use super::page::{Page, count, flag};
use crate::pool::{NamedTenant, Pool, PoolRegistry, sources};

/// Reads every pool of a registry at each scrape.
#[derive(Debug)]
pub struct PoolCollector(
    /// The pools.
    pub Arc<PoolRegistry>,
);

impl Collector for PoolCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let pools = self.0.pools();
        let tiers: Vec<_> = pools.iter().map(|pool| TierSnapshot::of(pool)).collect();
        let pools: Vec<_> = pools.iter().map(|pool| PoolSnapshot::of(pool)).collect();
        encode(encoder, &pools, &tiers)
    }
}

/// A pool's state at the moment of a scrape.
struct PoolSnapshot {
    pool: Arc<str>,
    stats: Stats,
    estimates: PoolEstimates,
    replicas: Vec<ReplicaStatus>,
    peers: Vec<PeerStatus>,
    tenants: Vec<NamedTenant>,
    /// Home region of each leased replica.
    leased: Vec<Arc<str>>,
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
            tenants: pool.tenants(),
            leased: pool.leased().into_values().collect(),
            are_sources_up: pool.source_problem().is_none(),
            now: pool.clock().now(),
        }
    }
}

fn encode(
    encoder: DescriptorEncoder<'_>,
    pools: &[PoolSnapshot],
    tiers: &[TierSnapshot],
) -> fmt::Result {
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
    encode_peers(&mut page, pools)?;
    encode_tenants(&mut page, pools)?;
    tiers::encode(&mut page, tiers)
}

fn encode_tenants(page: &mut Page<'_>, pools: &[PoolSnapshot]) -> fmt::Result {
    let each = || {
        pools.iter().flat_map(|pool| {
            let tenants = pool.tenants.iter();
            tenants.map(move |t| ([("pool", &*pool.pool), ("tenant", &*t.name)], &t.status))
        })
    };
    for (name, help, read) in TENANT_COUNTERS {
        let samples = each().map(|(labels, status)| (labels, read(status)));
        page.counters(name, help, samples)?;
    }
    for (name, help, read) in TENANT_GAUGES {
        let samples = each().map(|(labels, status)| (labels, read(status)));
        page.gauges(name, help, samples)?;
    }
    Ok(())
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
        "1 unless the replica answers probes without metrics; its outstanding requests then decide whether it \
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
         fail, whatever its probes report; hung: it answers none), role the part of a request that it serves: both, prefill, decode",
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
    let mut leased: BTreeMap<_, usize> = each().map(|(_, labels)| (labels, 0)).collect();
    for pool in pools {
        for region in &pool.leased {
            let labels = [("pool", &*pool.pool), ("region", &**region)];
            *leased.entry(labels).or_default() += 1;
        }
    }
    page.gauges(
        "leased_replicas",
        "Replicas of another region whose lease this region holds",
        leased.into_iter().map(|(labels, n)| (labels, count(n))),
    )
}
