//! What a decision costs: the lookup, the choice, the fallbacks and the insertion, over indexes and fleets of all sizes.
//!
//! Prompts are turns of conversations of about 64 KB (some 100 edges) that share 16 system prompts; each turn adds
//! eight edges. Four requests of five go on with a conversation, one starts a new one.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a bench: criterion's macros make undocumented items, and it reads the clock"
)]

use core::cell::RefCell;
use core::hint::black_box;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use isotherm_fingerprint::{Edge, Fingerprint};
use isotherm_router::{
    Effect, End, Event, IndexLimits, Load, PeerId, PeerReport, PeerSpec, PolicyName, Push,
    QueueLimits, RegionRules, ReplicaId, ReplicaSpec, Request, RequestId, Router, RouterConfig,
    Scope, Served, SessionKey, Tier, Time,
};

const SYSTEM_EDGES: u32 = 16;
const FIRST_EDGES: u32 = 92;
const TURN_EDGES: u32 = 8;

/// The small generator of numbers that the load needs; not the router's.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = mix(self.0.wrapping_add(0x9e37_79b9_7f4a_7c15));
        self.0
    }
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Which requests to make.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Another turn of a conversation: most of it is known.
    Turn,
    /// A new conversation: known up to its system prompt.
    New,
    /// Four turns to one new conversation.
    Mixed,
}

/// A router with its index filled, and the load that goes on filling it.
struct Bench {
    router: Router,
    numbers: Numbers,
    now: u64,
    next_request: u64,
    /// Edges of each conversation so far.
    conversations: Vec<u32>,
    scope: Scope,
}

impl Bench {
    fn new(config: RouterConfig, replicas: u32, nodes: usize) -> Self {
        let mut bench = Self {
            router: Router::new(config, 1),
            numbers: Numbers(1),
            now: 1,
            next_request: 0,
            conversations: Vec::new(),
            scope: Scope::Home,
        };
        for id in 0..replicas {
            let replica = ReplicaId(id);
            let spec = ReplicaSpec {
                name: format!("10.0.{}.{}:8000", id / 256, id % 256),
            };
            bench.event(Event::Added { replica, spec });
        }
        for id in 0..replicas {
            bench.probe(id);
        }
        while bench.router.stats(Time::ZERO).index.nodes < nodes {
            let before = bench.router.stats(Time::ZERO).index.evicted;
            for _ in 0..100 {
                bench.settle();
                let request = bench.request(Kind::Mixed);
                bench.decide(request);
            }
            if bench.router.stats(Time::ZERO).index.evicted > before {
                break;
            }
        }
        bench
    }

    /// A pool that is full, in one of several regions that all have room; an index over peers with this many nodes.
    fn full(policy: PolicyName, replicas: u32, peers: u16, nodes: usize) -> Self {
        let config = RouterConfig {
            push: Push::Outstanding { max: 1 },
            region: RegionRules {
                stale_after: Duration::from_secs(1_000_000),
                ..RouterConfig::default().region
            },
            ..config(policy, 1 << 30)
        };
        let mut bench = Self::new(config, replicas, 0);
        for _ in 0..replicas {
            let request = bench.request(Kind::Mixed);
            bench.decide(request);
        }
        // Those stay; the ones below are another run of identities, so that `settle` does not end them.
        bench.next_request += 8;
        bench.scope = Scope::Regions {
            tried: smallvec::SmallVec::new(),
        };
        for id in 0..peers {
            let peer = PeerId(id);
            let spec = PeerSpec {
                name: format!("region-{id}"),
            };
            bench.event(Event::PeerAdded { peer, spec });
            bench.heartbeat(id);
        }
        while bench.router.stats(Time::ZERO).peer_index.nodes < nodes {
            bench.settle();
            let request = bench.request(Kind::Mixed);
            assert!(matches!(
                bench.decide(request),
                Some(Effect::Forward { .. })
            ));
            bench.heartbeat(u16::try_from(bench.next_request % u64::from(peers)).unwrap());
        }
        bench
    }

    fn heartbeat(&mut self, id: u16) {
        let draw = self.numbers.next();
        self.event(Event::PeerReported {
            peer: PeerId(id),
            report: PeerReport {
                available: 10,
                replicas: 100,
                room: 1_000_000,
                queue: u32::try_from(draw % 3).unwrap(),
                drain_per_s: 50.0,
            },
            as_of: Time::from_nanos(self.now),
            round_trip: Duration::from_micros(50_000 + draw % 100_000),
        });
    }

    fn event(&mut self, event: Event) {
        self.router.handle(Time::from_nanos(self.now), event);
    }

    fn probe(&mut self, id: u32) {
        self.event(Event::Probed {
            replica: ReplicaId(id),
            load: Load::default(),
            sent: Time::from_nanos(self.now),
        });
    }

    fn request(&mut self, kind: Kind) -> Request {
        let id = self.next_request;
        self.next_request += 1;
        let draw = self.numbers.next();
        let known = self.conversations.len() as u64;
        let new = match kind {
            Kind::Turn => false,
            Kind::New => true,
            Kind::Mixed => draw.is_multiple_of(5),
        };
        let conversation = if known == 0 || new {
            self.conversations.push(SYSTEM_EDGES + FIRST_EDGES);
            known
        } else {
            (draw / 5) % known
        };
        let length = &mut self.conversations[usize::try_from(conversation).unwrap()];
        *length += TURN_EDGES;
        Request {
            id: RequestId(id),
            fingerprint: Arc::new(chain(conversation, *length)),
            session: Some(SessionKey(conversation)),
            tier: Tier::default(),
            prompt_tokens: *length * 150,
            output_tokens_max: None,
            subset: None,
            scope: self.scope.clone(),
        }
    }

    /// What is measured.
    fn decide(&mut self, request: Request) -> Option<Effect> {
        self.event(Event::Arrived(request));
        self.router.poll_effect()
    }

    /// A while later the request has finished and its replica was probed.
    fn settle(&mut self) {
        self.now += 1_000_000;
        let Some(id) = self.next_request.checked_sub(8) else {
            return;
        };
        self.event(Event::Finished {
            id: RequestId(id),
            served: Served::Unsaid,
            end: End::Answered,
            ttft_us: None,
            prompt_tokens: None,
            cached_tokens: None,
            completion_tokens: None,
        });
    }
}

/// A conversation's prompt when it is this long, in edges.
fn chain(conversation: u64, edges: u32) -> Fingerprint {
    let edges: Vec<Edge> = (0..edges)
        .map(|i| {
            let owner = if i < SYSTEM_EDGES {
                conversation % 16
            } else {
                1_000 + conversation
            };
            Edge {
                hash: mix(mix(owner) ^ u64::from(i)),
                end_bytes: (i + 1) * 600,
            }
        })
        .collect();
    let total = edges.last().map_or(0, |edge| edge.end_bytes + 100);
    Fingerprint::new(edges, total).unwrap()
}

fn config(policy: PolicyName, bytes_max: usize) -> RouterConfig {
    RouterConfig {
        policy,
        push: Push::Outstanding { max: 100 },
        index: IndexLimits {
            bytes_max,
            ..RouterConfig::default().index
        },
        queue: QueueLimits {
            length_max: 1_000_000,
            wait_max: Duration::from_secs(1_000_000),
        },
        probe_stale_after: Duration::from_secs(1_000_000),
        ..RouterConfig::default()
    }
}

/// Times each decision by itself and reports the median: a machine with other work adds to the mean what no
/// decision costs.
fn measure(c: &mut Criterion, group: &str, name: &str, bench: &mut Bench, kind: Kind) {
    c.benchmark_group(group)
        .bench_function(BenchmarkId::from_parameter(name), |b| {
            b.iter_custom(|iterations| {
                let mut times = Vec::new();
                for _ in 0..iterations {
                    bench.settle();
                    let request = bench.request(kind);
                    let start = Instant::now();
                    black_box(bench.decide(request));
                    times.push(start.elapsed());
                }
                times.sort_unstable();
                times[times.len() / 2] * u32::try_from(iterations).unwrap()
            });
        });
}

fn decisions(c: &mut Criterion) {
    for nodes in [10_000, 100_000, 1_000_000] {
        for replicas in [10, 100, 1_000] {
            let mut bench = Bench::new(config(PolicyName::PrefixTree, 1 << 30), replicas, nodes);
            let name = format!("{nodes} nodes, {replicas} replicas");
            measure(c, "turn", &name, &mut bench, Kind::Turn);
            measure(c, "new", &name, &mut bench, Kind::New);
        }
    }
    // At its bound each insertion also evicts.
    let config = config(PolicyName::PrefixTree, 64 << 20);
    let mut full = Bench::new(config, 1_000, usize::MAX);
    measure(
        c,
        "turn",
        "at the bound, 1000 replicas",
        &mut full,
        Kind::Turn,
    );
    measure(
        c,
        "new",
        "at the bound, 1000 replicas",
        &mut full,
        Kind::New,
    );
}

fn policies(c: &mut Criterion) {
    for policy in PolicyName::ALL {
        let mut bench = Bench::new(config(policy, 1 << 30), 1_000, 100_000);
        measure(c, "policy", policy.as_str(), &mut bench, Kind::Mixed);
    }
}

/// A pool that is full among fifty regions that have room; and what their heartbeats cost it.
fn regions(c: &mut Criterion) {
    for policy in [PolicyName::PrefixTree, PolicyName::ConsistentHash] {
        let mut bench = Bench::full(policy, 100, 50, 100_000);
        let name = format!("{policy}, 50 peers");
        measure(c, "forward", &name, &mut bench, Kind::Mixed);
    }
    let mut bench = Bench::full(PolicyName::PrefixTree, 100, 50, 100_000);
    c.bench_function("forward/heartbeat of one of 50 peers", |b| {
        b.iter(|| {
            bench.now += 1_000;
            bench.heartbeat(u16::try_from(bench.now / 1_000 % 50).unwrap());
        });
    });
}

/// With a hundred thousand waiting: one finishes and the oldest goes, one more comes and waits.
fn queue(c: &mut Criterion) {
    let mut config = config(PolicyName::PrefixTree, 1 << 30);
    config.push = Push::Outstanding { max: 1 };
    let mut bench = Bench::new(config, 100, 0);
    for _ in 0..100_100 {
        let request = bench.request(Kind::Mixed);
        bench.event(Event::Arrived(request));
    }
    let mut running = std::collections::VecDeque::new();
    while let Some(Effect::Dispatch { id, .. }) = bench.router.poll_effect() {
        running.push_back(id);
    }
    let shared = RefCell::new((bench, running));
    c.bench_function("queue/finish, dispatch and arrive at 100000", |b| {
        b.iter_batched(
            || shared.borrow_mut().0.request(Kind::Mixed),
            |request| {
                let (bench, running) = &mut *shared.borrow_mut();
                bench.now += 1_000_000;
                bench.event(Event::Finished {
                    id: running.pop_front().unwrap(),
                    served: Served::Unsaid,
                    end: End::Answered,
                    ttft_us: None,
                    prompt_tokens: None,
                    cached_tokens: None,
                    completion_tokens: None,
                });
                if let Some(Effect::Dispatch { id, .. }) = bench.decide(request) {
                    running.push_back(id);
                }
            },
            BatchSize::PerIteration,
        );
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(50)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = decisions, policies, regions, queue
}
criterion_main!(benches);
