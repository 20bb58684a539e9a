//! Reports of peers reach the pools, and stop when a peer is lost.

use isotherm_ext_proc::pool::RouteRequest;
use isotherm_ext_proc::regions::RegionState;
use isotherm_router::PeerAvailability;

use super::world::{Node, connect, connected, place, wait_until};

#[tokio::test]
async fn a_full_region_forwards_to_a_region_with_free_capacity() {
    let us = Node::start("us", "").await;
    let eu = Node::start("eu", "").await;
    connected(&[&us, &eu]).await;

    let (_running, progress) = us.submit(RouteRequest::default());
    assert_eq!(place(&progress), us.engines[0].addr.to_string());
    let (_forwarded, progress) = us.submit(RouteRequest::default());
    assert_eq!(place(&progress), "eu");

    // The region's own requests fill it: it says so, and gets no more.
    let (_running, _) = eu.submit(RouteRequest::default());
    wait_until("us knows that eu is full", || {
        us.availability("eu") == Some(PeerAvailability::NoReplica)
    })
    .await;

    let eu_seen = us.sees("eu").unwrap();
    assert_eq!(eu_seen.state, RegionState::Up);
    assert!(eu_seen.round_trip_ms.is_some() && eu_seen.heartbeat_age_ms.is_some());
    assert_eq!(
        (eu_seen.cluster.as_str(), eu_seen.link.as_ref()),
        ("region-eu", "up")
    );
}

#[tokio::test]
async fn a_killed_region_gets_no_requests_until_it_returns() {
    let us = Node::start("us", "").await;
    let mut eu = Node::start("eu", "").await;
    connected(&[&us, &eu]).await;
    eu.kill();
    wait_until("us has lost eu", || {
        us.availability("eu") == Some(PeerAvailability::Lost)
    })
    .await;
    let seen = us.sees("eu").unwrap();
    assert_eq!(seen.link.as_ref(), "unreachable", "{seen:?}");
    eu.run().await;
    connected(&[&us, &eu]).await;
}

#[tokio::test]
async fn an_orderly_stop_is_noticed_by_the_link_before_the_silence() {
    // Silence alone would take half a minute.
    let us = Node::start("us", "heartbeat_ms: 10000").await;
    let mut eu = Node::start("eu", "heartbeat_ms: 10000").await;
    connected(&[&us, &eu]).await;
    let stopping = std::time::Instant::now();
    eu.stop().await;
    wait_until("us has lost eu", || {
        us.availability("eu") == Some(PeerAvailability::Lost)
    })
    .await;
    assert!(
        stopping.elapsed().as_secs() < 20,
        "{:?}",
        stopping.elapsed()
    );
}

#[tokio::test]
async fn peers_come_and_go_with_the_configuration() {
    let us = Node::start("us", "").await;
    let eu = Node::start("eu", "").await;
    let asia = Node::start("asia", "").await;
    connected(&[&us, &eu]).await;
    assert!(us.sees("asia").is_none());
    connected(&[&us, &eu, &asia]).await;
    connect(&[&us, &asia]);
    wait_until("us does not know eu any more", || {
        us.sees("eu").is_none() && us.availability("eu").is_none()
    })
    .await;
    wait_until("eu is not answered any more", || {
        eu.availability("us") != Some(PeerAvailability::Available)
    })
    .await;
    connected(&[&us, &asia]).await;
}
