//! How figures that are read at a scrape are written: one metric after the other, for every pool.

use std::fmt;
use std::sync::Arc;

use isotherm_router::{Availability, Counters, PeerStatus, ReplicaStatus, Stats, Time};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::pool::Pool;

/// One pool at the moment of the scrape.
pub(super) struct Snapshot {
    pub(super) pool: Arc<str>,
    pub(super) stats: Stats,
    pub(super) replicas: Vec<ReplicaStatus>,
    pub(super) peers: Vec<PeerStatus>,
    /// The region of each adopted replica.
    pub(super) adopted: Vec<Arc<str>>,
    pub(super) now: Time,
}

impl Snapshot {
    pub(super) fn of(pool: &Pool) -> Self {
        Self {
            pool: Arc::clone(pool.name()),
            stats: pool.stats(),
            replicas: pool.replicas(),
            peers: pool.peers(),
            adopted: adopted(pool),
            now: pool.clock().now(),
        }
    }
}

fn adopted(pool: &Pool) -> Vec<Arc<str>> {
    let Some(peer_table) = pool.peer_table() else {
        return Vec::new();
    };
    let members = Arc::clone(&pool.members().borrow());
    let regions = members.iter().filter_map(|member| member.adopted_from);
    let regions = regions.filter_map(|peer| peer_table.get(peer));
    regions.map(|peer| Arc::clone(&peer.name)).collect()
}

/// Writes one metric after the other.
pub(super) struct Page<'a> {
    encoder: DescriptorEncoder<'a>,
}

pub(super) type Label = (&'static str, &'static str);

impl<'a> Page<'a> {
    pub(super) fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Self { encoder }
    }

    pub(super) fn counters(
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

    pub(super) fn counter(
        &mut self,
        name: &str,
        help: &str,
        pools: &[Snapshot],
        read: impl Fn(&Counters) -> u64,
    ) -> fmt::Result {
        self.counters(name, help, pools, |s| vec![(None, read(&s.stats.counters))])
    }

    pub(super) fn gauge(
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

    pub(super) fn replicas(
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

    /// A counter for each pool and each of its peers.
    pub(super) fn peer_counter(
        &mut self,
        name: &str,
        help: &str,
        pools: &[Snapshot],
        read: impl Fn(&PeerStatus) -> u64,
    ) -> fmt::Result {
        let mut metric = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for pool in pools {
            for peer in &pool.peers {
                metric
                    .encode_family(&[("pool", &*pool.pool), ("region", &peer.name)])?
                    .encode_counter::<NoLabelSet, _, u64>(&read(peer), None)?;
            }
        }
        Ok(())
    }

    /// A gauge for each pool and each of its peers.
    pub(super) fn peer_gauge(
        &mut self,
        name: &str,
        help: &str,
        pools: &[Snapshot],
        read: impl Fn(&PeerStatus) -> Option<f64>,
    ) -> fmt::Result {
        let mut metric = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for pool in pools {
            for peer in &pool.peers {
                if let Some(value) = read(peer) {
                    metric
                        .encode_family(&[("pool", &*pool.pool), ("region", &peer.name)])?
                        .encode_gauge(&value)?;
                }
            }
        }
        Ok(())
    }

    /// A counter without labels.
    pub(super) fn total(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    /// A gauge with labels of its own.
    pub(super) fn labelled<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([(&'static str, String); N], f64)>,
    ) -> fmt::Result {
        let mut metric = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    pub(super) fn availability(&mut self, pools: &[Snapshot]) -> fmt::Result {
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
                    ("state", replica.availability.as_str()),
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
pub(super) fn count(value: usize) -> f64 {
    value as f64
}
