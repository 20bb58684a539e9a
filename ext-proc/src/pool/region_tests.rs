//! Pools among regions: who is told what, and who looks after whose replicas.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use isotherm_fingerprint::{BlockHash, Fingerprint};
use isotherm_router::{Availability, Load, PeerId, PeerReport, Scope};
use prometheus_client::registry::Registry;

use super::*;
use crate::config;
use crate::metrics::Metrics;
use crate::recorder::event::EndReason;

const REGION: &str = "
region: { name: us, listen: '127.0.0.1:9004', siblings: ['127.0.0.1:9005'],
          peers: [{ name: eu, address: '127.0.0.1:9014' }, { name: asia, address: '127.0.0.1:9024' }] }";
const POOLS: &str = "pools: [{ model: m, push: outstanding:1 }]";

const FREE_CAPACITY: PeerReport = PeerReport {
    available: 1,
    replicas: 2,
    free_capacity: 1,
    queue: 0,
    drain_per_s: 1.0,
    prompt_cost: None,
    utilisation: None,
    kv_capacity_tokens: 0,
    batch_credit: 0,
    batch_queue: 0,
};

fn pool_registry(text: &str) -> PoolRegistry {
    let config = config::parse(text).unwrap();
    let metrics = Metrics::register(&mut Registry::default());
    PoolRegistry::new(&config, Arc::new(metrics), Clock::start())
}

/// The pool of a region with two peers.
fn pool() -> (PoolRegistry, Arc<Pool>) {
    let pool_registry = pool_registry(&format!("{POOLS}{REGION}"));
    let pool = pool_registry.pool_for("m").unwrap();
    (pool_registry, pool)
}

fn addr(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn lease(owner: PeerId) -> ReplicaLease {
    ReplicaLease { owner, revision: 7 }
}

fn names(pool: &Pool) -> Vec<String> {
    let mut names: Vec<_> = pool.peers().into_iter().map(|peer| peer.name).collect();
    names.sort();
    names
}

fn leased(pool: &Pool) -> Vec<bool> {
    let members = pool.members();
    let members = members.borrow();
    let leased = members.iter().map(|member| member.lease.is_some());
    leased.collect()
}

fn prompt() -> RouteRequest {
    let block = BlockHash {
        hash: 7,
        end_bytes: 1024,
    };
    RouteRequest {
        fingerprint: Arc::new(Fingerprint::new(vec![block], 1024).unwrap()),
        scope: Scope::Regions {
            tried: [].into_iter().collect(),
        },
        ..RouteRequest::default()
    }
}

#[tokio::test]
async fn every_pool_knows_the_configured_peers_after_a_reload() {
    let (pool_registry, pool) = pool();
    assert_eq!(names(&pool), ["asia", "eu"]);
    let peer_table = pool.peer_table().unwrap();
    let asia = peer_table.named("asia").unwrap().id;
    pool.peer_reported(asia, FREE_CAPACITY, pool.clock().now(), Duration::ZERO);

    let text = "pools: [{ model: m }, { model: other }]
region: { name: eu, listen: '127.0.0.1:9004',
          peers: [{ name: asia, address: '127.0.0.1:9024' }, { name: africa, address: '127.0.0.1:9034' }] }";
    pool_registry.apply(&config::parse(text).unwrap());
    for model in ["m", "other"] {
        assert_eq!(
            names(&pool_registry.pool_for(model).unwrap()),
            ["africa", "asia"]
        );
    }
    let now = pool.peer_table().unwrap();
    assert_eq!(&**now.own(), "us", "only a restart changes that");
    let known = now.named("asia").unwrap();
    assert_eq!((known.id, &*known.cluster), (asia, "region-asia"));
    let mut peers = pool.peers().into_iter();
    let report = peers.find(|peer| peer.id == asia).unwrap().report;
    assert_eq!(
        report,
        Some(FREE_CAPACITY),
        "it stayed, and so did what it said"
    );
    pool_registry.apply(&config::parse(POOLS).unwrap());
    assert_eq!(names(&pool), ["africa", "asia"]);
}

#[tokio::test]
async fn a_pool_without_regions_has_no_peers() {
    let pool_registry = pool_registry(POOLS);
    let pool = pool_registry.pool_for("m").unwrap();
    pool_registry.apply(&config::parse(&format!("{POOLS}{REGION}")).unwrap());
    assert!(pool.peer_table().is_none() && pool.peers().is_empty());
    let report = pool.report();
    assert_eq!((report.replicas, report.queue), (0, 0));
}

#[tokio::test]
async fn leased_replicas_are_released_and_configured_ones_stay() {
    let (_registry, pool) = pool();
    let peer_table = pool.peer_table().unwrap();
    let [eu, asia] = ["eu", "asia"].map(|name| peer_table.named(name).unwrap().id);
    pool.add_replica(addr(1)).unwrap();
    for port in [2, 3] {
        let id = pool.lease_replica(addr(port), lease(eu)).unwrap();
        pool.probed(id, Load::default(), pool.clock().now());
    }
    assert_eq!(leased(&pool), [false, true, true]);
    assert_eq!(pool.replicas()[1].availability, Availability::Available);
    assert_eq!(
        pool.lease_replica(addr(1), lease(eu)),
        Err(MembershipError::Exists(addr(1)))
    );
    // The configuration names one of them.
    pool.add_replica(addr(2)).unwrap();
    assert_eq!(leased(&pool), [false, false, true]);
    assert!(pool.release_replica(addr(3), asia).is_err());
    for (port, goes) in [(1, false), (2, false), (3, true)] {
        assert_eq!(pool.release_replica(addr(port), eu).is_ok(), goes, "{port}");
    }
    assert_eq!(leased(&pool), [false, false]);
}

#[tokio::test]
async fn own_replicas_get_no_request_while_another_region_decides_about_them() {
    let (_registry, pool) = pool();
    let eu = pool.peer_table().unwrap().named("eu").unwrap().id;
    pool.add_replica(addr(1)).unwrap();
    let leased = pool.lease_replica(addr(2), lease(eu)).unwrap();
    pool.set_suspended(true);
    pool.probed(leased, Load::default(), pool.clock().now());
    let (_guard, submission) = pool.submit(&RouteRequest::default());
    let Submission::Decided(PoolDecision::Dispatch(route)) = submission else {
        panic!("no route: {submission:?}")
    };
    assert_eq!(
        route.lease.as_deref(),
        Some(&("eu".into(), 7)),
        "the decision names its lease"
    );
    pool.add_replica(addr(3)).unwrap();
    let draining = || -> Vec<bool> {
        let replicas = pool.replicas();
        replicas.iter().map(|replica| replica.draining).collect()
    };
    assert_eq!(draining(), [true, false, true]);
    pool.drain_replica(addr(3)).unwrap();
    pool.set_suspended(false);
    assert_eq!(draining(), [false, false, true]);
}

#[tokio::test]
async fn a_sibling_learns_of_a_placement_on_a_replica() {
    let ((_a, here), (_b, there)) = (pool(), pool());
    for pool in [&here, &there] {
        for port in [1, 2] {
            let id = pool.add_replica(addr(port)).unwrap();
            pool.probed(id, Load::default(), pool.clock().now());
        }
    }
    let (_running, submission) = here.submit(&prompt());
    let Submission::Decided(PoolDecision::Dispatch(route)) = submission else {
        panic!("{submission:?}");
    };
    let placements = here.take_placements(10);
    assert_eq!(placements.len(), 1);
    assert_eq!(
        placements[0].target,
        SharedTarget::Replica(route.chosen.addr())
    );
    assert!(here.take_placements(10).is_empty(), "told once");
    there.apply_placements(placements);
    let candidates = there.explain(&prompt()).candidates;
    let matched = candidates.iter().map(|candidate| {
        let chosen = candidate.name == route.chosen.as_str();
        (chosen, candidate.matched_bytes)
    });
    let mut matched: Vec<_> = matched.collect();
    matched.sort_unstable();
    assert_eq!(matched, [(false, 0), (true, 1024)]);
    assert!(there.take_placements(10).is_empty(), "it is not told on");
}

#[tokio::test]
async fn a_sibling_learns_of_a_forwarded_prompt() {
    let ((_a, here), (_b, there)) = (pool(), pool());
    let report = |pool: &Pool, name: &str| {
        let peer = pool.peer_table().unwrap().named(name).unwrap().id;
        pool.peer_reported(peer, FREE_CAPACITY, pool.clock().now(), Duration::ZERO);
    };
    report(&here, "asia");
    let (_running, submission) = here.submit(&prompt());
    let Submission::Decided(PoolDecision::Forward(forward)) = submission else {
        panic!("{submission:?}");
    };
    assert_eq!(&*forward.peer.name, "asia");
    let placements = here.take_placements(10);
    let target = SharedTarget::Peer("asia".into());
    assert_eq!(placements.first().map(|p| &p.target), Some(&target));
    report(&there, "asia");
    there.apply_placements(placements);
    let regions = there.explain(&prompt()).peers;
    let asia = regions.iter().find(|region| region.name == "asia").unwrap();
    assert_eq!(asia.matched_bytes, 1024);
}

#[tokio::test]
async fn a_placement_with_an_unknown_target_is_ignored() {
    let (_registry, pool) = pool();
    let placement = |target| SharedPlacement {
        target,
        parent: None,
        blocks: Box::new([]),
        uncached_tokens: None,
    };
    let strangers = [
        SharedTarget::Replica(addr(9)),
        SharedTarget::Peer("mars".into()),
    ];
    pool.apply_placements(strangers.map(placement));
    assert_eq!(pool.stats().counters.placements_received, 0);
}

#[tokio::test]
async fn only_the_first_arrival_of_a_request_is_recorded() {
    let (_registry, pool) = pool();
    let reader = pool.recorder().start(pool.clock().now(), 10).unwrap();
    let tried = [PeerId(0)].into_iter().collect();
    for (scope, recorded) in [
        (Scope::Forwarded, 0),
        (Scope::Regions { tried }, 0),
        (Scope::Local, 1),
    ] {
        let request = RouteRequest {
            scope,
            ..RouteRequest::default()
        };
        let _submitted = pool.submit(&request);
        assert_eq!(reader.summary(EndReason::Time, 0).unfinished, recorded);
    }
}
