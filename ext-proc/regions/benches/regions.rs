//! Cost of heartbeats and lists of the store for one service: up to 50 regions, four pools, 50,000 replicas.
//!
//! The reports of a heartbeat are passed to the router of each pool, which holds its own region's share of the
//! replicas. The cost of heartbeats grows with the regions and must not grow with the replicas.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a bench: criterion's macros make undocumented items, and it reads the clock"
)]

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use isotherm_regions::{
    LeaseConfig, LeaseInputs, Leases, PoolReplicas, RegionEntry, StoreVersion, StoredEntry,
};
use isotherm_router::{
    Event as PoolEvent, Load, PeerId, PeerReport, ReplicaId, Router, RouterConfig, Time,
};

const INTERVAL: Duration = Duration::from_millis(200);
const MODELS: [&str; 4] = ["llama", "qwen", "gemma", "mixtral"];

fn name(region: u16) -> String {
    format!("region-{region}")
}

/// The routers of region 0's pools.
struct Pools {
    routers: BTreeMap<Arc<str>, Router>,
    peers: u16,
    now: Time,
    /// Peer whose heartbeat arrives next.
    turn: u16,
}

impl Pools {
    fn new(regions: u16, replicas_in_all: u32) -> Self {
        let peers = regions - 1;
        let each = replicas_in_all / u32::from(regions) / 4;
        let routers = MODELS.iter();
        Self {
            routers: routers
                .map(|model| (Arc::from(*model), router(each, peers)))
                .collect(),
            peers,
            now: Time::from_nanos(1),
            turn: 0,
        }
    }

    /// Passes the reports of the next peer to the routers.
    fn heartbeat(&mut self) {
        self.turn = self.turn % self.peers + 1;
        if self.turn == 1 {
            self.now = self.now.after(INTERVAL);
        }
        for router in self.routers.values_mut() {
            let report = PeerReport {
                available: u32::from(self.turn) % 3,
                replicas: 25,
                free_capacity: 40,
                queue: u32::from(self.turn) % 4,
                drain_per_s: 12.5,
                ..PeerReport::default()
            };
            let event = PoolEvent::PeerReported {
                peer: PeerId(self.turn),
                report,
                as_of: self.now,
                round_trip: INTERVAL / 4,
            };
            router.handle(self.now, event);
        }
    }
}

fn members(region: u16, each: u32) -> Vec<PoolReplicas> {
    let address = |n| Arc::from(format!("10.{region}.{}.{}:8000", n / 256, n % 256).as_str());
    MODELS
        .iter()
        .map(|model| PoolReplicas {
            model: Arc::from(*model),
            replicas: (0..each).map(address).collect(),
        })
        .collect()
}

/// The leases of region 0, and a list of the store with the records of all regions.
fn listed(regions: u16, replicas_in_all: u32) -> (Leases, Vec<StoredEntry>) {
    let now = Time::from_nanos(1);
    let config = LeaseConfig {
        name: name(0).as_str().into(),
        lease: Duration::from_secs(10),
        give_back_after: Duration::from_secs(10),
    };
    let mut leases = Leases::new(config, now);
    let each = replicas_in_all / u32::from(regions) / 4;
    let inputs = LeaseInputs {
        pools: Some(members(0, each)),
        has_gateway: true,
        ..LeaseInputs::default()
    };
    *leases.inputs_mut() = inputs;
    leases.handle_timeout(now);
    let found = (0..regions).map(|region| StoredEntry {
        entry: RegionEntry {
            region: name(region).as_str().into(),
            address: "10.0.0.1:9004".into(),
            pools: members(region, each),
            holder: Some(name(region).as_str().into()),
            revision: 1,
            ..RegionEntry::default()
        },
        version: StoreVersion("1".into()),
    });
    (leases, found.collect())
}

fn router(replicas: u32, peers: u16) -> Router {
    let mut router = Router::new(RouterConfig::default(), 1);
    let now = Time::from_nanos(1);
    for id in 0..replicas {
        let replica = ReplicaId(id);
        let name = format!("10.0.{}.{}:8000", id / 256, id % 256);
        router.handle(
            now,
            PoolEvent::Added {
                replica,
                name,
                role: isotherm_router::Role::Both,
            },
        );
        let (load, sent) = (Load::default(), now);
        router.handle(
            now,
            PoolEvent::Probed {
                replica,
                load,
                sent,
            },
        );
    }
    for id in 1..=peers {
        let name = name(id);
        let peer = PeerId(id);
        router.handle(now, PoolEvent::PeerAdded { peer, name });
    }
    router
}

fn heartbeats(c: &mut Criterion) {
    for (regions, replicas) in [(10, 1_000), (50, 500), (50, 5_000), (50, 50_000)] {
        let label = format!("{regions}-regions-{replicas}-replicas");
        let mut pools = Pools::new(regions, replicas);
        c.benchmark_group("heartbeat")
            .bench_function(BenchmarkId::from_parameter(&label), |b| {
                b.iter(|| pools.heartbeat());
            });
        c.benchmark_group("list")
            .bench_function(BenchmarkId::from_parameter(&label), |b| {
                let (mut leases, mut found) = listed(regions, replicas);
                let mut now = Time::from_nanos(1);
                b.iter_custom(|iterations| {
                    let mut spent = Duration::ZERO;
                    for _ in 0..iterations {
                        now = now.after(INTERVAL);
                        for stored in &mut found {
                            stored.entry.renewals += 1;
                        }
                        let found = Some(found.clone());
                        let start = Instant::now();
                        leases.on_listed(now, now, found);
                        spent += start.elapsed();
                        while leases.poll_effect().is_some() {}
                    }
                    spent
                });
            });
    }
}

criterion_group!(benches, heartbeats);
criterion_main!(benches);
