//! Cost of heartbeats, lists of the store and periodic work for one service: up to 50 regions, four pools, 50,000 replicas.
//!
//! A heartbeat is accepted, applied, and passed to the router of each pool, which holds its own region's share of the
//! replicas. The cost of heartbeats grows with the regions and must not grow with the replicas.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a bench: criterion's macros make undocumented items, and it reads the clock"
)]

use core::hint::black_box;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use isotherm_regions::{
    Effect, Event, Heartbeat, LeaseConfig, LeaseInputs, Leases, Ping, PoolReplicas, RegionEntry,
    Regions, RegionsConfig, StoreVersion, StoredEntry,
};
use isotherm_router::{
    Event as PoolEvent, Load, PeerId, PeerReport, ReplicaId, Router, RouterConfig, Time,
};

const INTERVAL: Duration = Duration::from_millis(200);
const MODELS: [&str; 4] = ["llama", "qwen", "gemma", "mixtral"];

fn name(region: u16) -> String {
    format!("region-{region}")
}

/// The service of region 0 with the routers of its pools.
struct Service {
    regions: Regions,
    routers: BTreeMap<Arc<str>, Router>,
    peers: u16,
    now: Time,
    /// Peer whose heartbeat arrives next.
    turn: u16,
}

impl Service {
    fn new(regions: u16, replicas_in_all: u32) -> Self {
        let peers = regions - 1;
        let each = replicas_in_all / u32::from(regions) / 4;
        let config = RegionsConfig {
            interval: INTERVAL,
            peers: (1..=peers)
                .map(|id| (PeerId(id), name(id).as_str().into()))
                .collect(),
        };
        let now = Time::from_nanos(1);
        Self {
            regions: Regions::new(config, now),
            routers: MODELS
                .iter()
                .map(|model| (Arc::from(*model), router(each, peers)))
                .collect(),
            peers,
            now,
            turn: 0,
        }
    }

    /// Passes an event to the core and carries out its effects.
    fn tell(&mut self, event: Event) {
        self.regions.handle(self.now, event);
        self.follow();
    }

    fn follow(&mut self) {
        while let Some(effect) = self.regions.poll_effect() {
            match effect {
                Effect::UpdatePeer {
                    peer,
                    pools,
                    as_of,
                    round_trip,
                } => {
                    for (model, report) in pools {
                        if let Some(router) = self.routers.get_mut(&model) {
                            let event = PoolEvent::PeerReported {
                                peer,
                                report,
                                as_of,
                                round_trip,
                            };
                            router.handle(self.now, event);
                        }
                    }
                }
                other => {
                    black_box(other);
                }
            }
        }
    }

    fn wait(&mut self, by: Duration) {
        self.now = self.now.after(by);
        self.regions.handle_timeout(self.now);
        self.follow();
    }

    /// Returns the next peer in turn.
    fn next(&mut self) -> PeerId {
        self.turn = self.turn % self.peers + 1;
        PeerId(self.turn)
    }

    /// Returns a peer's reply to a ping of this moment.
    fn heartbeat(&self, peer: PeerId) -> Event {
        let nonce = self.now.as_nanos();
        let ping = Ping {
            nonce,
            sent: self.now,
        };
        let report = PeerReport {
            available: u32::from(peer.0) % 3,
            replicas: 25,
            free_capacity: 40,
            queue: u32::try_from(nonce % 4).unwrap(),
            drain_per_s: 12.5,
            ..PeerReport::default()
        };
        let heartbeat = Heartbeat {
            nonce,
            version: "bench".into(),
            has_gateway: true,
            pools: MODELS
                .iter()
                .map(|model| (Arc::from(*model), report))
                .collect(),
        };
        Event::Heartbeat(peer, ping, heartbeat)
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
    leases.set_inputs(now, inputs);
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
        let mut service = Service::new(regions, replicas);
        c.benchmark_group("heartbeat")
            .bench_function(BenchmarkId::from_parameter(&label), |b| {
                b.iter_custom(|iterations| {
                    let mut spent = Duration::ZERO;
                    for _ in 0..iterations {
                        let peer = service.next();
                        if peer.0 == 1 {
                            service.wait(INTERVAL);
                        }
                        let heartbeat = service.heartbeat(peer);
                        let start = Instant::now();
                        service.tell(heartbeat);
                        spent += start.elapsed();
                    }
                    spent
                });
            });
        let believed = service.regions.counters();
        assert_eq!(
            believed.heartbeats_rejected, 0,
            "only what counts is measured"
        );
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
        // First all peers reply; then none does.
        for (state, answered) in [("well", true), ("all-lost", false)] {
            c.benchmark_group("tick")
                .bench_function(BenchmarkId::new(state, &label), |b| {
                    b.iter_custom(|iterations| {
                        let mut spent = Duration::ZERO;
                        for _ in 0..iterations {
                            service.now = service.now.after(INTERVAL);
                            let start = Instant::now();
                            service.regions.handle_timeout(service.now);
                            spent += start.elapsed();
                            service.follow();
                            for id in (1..=service.peers).filter(|_| answered) {
                                let heartbeat = service.heartbeat(PeerId(id));
                                service.tell(heartbeat);
                            }
                        }
                        spent
                    });
                });
        }
    }
}

criterion_group!(benches, heartbeats);
criterion_main!(benches);
