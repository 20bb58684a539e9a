//! Replicas of a dead region: leased by one region, and given back. The tests need a real etcd, and are skipped without one.

use std::time::Duration;

use isotherm_ext_proc::pool::{RouteRequest, Submission};
use isotherm_ext_proc::regions::{LeaseState, PeerSource};

use super::etcd::Etcd;
use super::fake::{FakeEngine, vllm};
use super::world::{Node, connect, connected, throughout, wait_until};

/// The options of a region with a store.
fn options(etcd: &Etcd) -> String {
    let address = etcd.address();
    format!("store: {{ etcd: [\"{address}\"], lease_ms: 1000 }}")
}

/// Starts regions that are connected and hold their own leases.
async fn regions<const N: usize>(etcd: &Etcd, names: [&'static str; N]) -> [Node; N] {
    let mut nodes = Vec::new();
    for name in names {
        nodes.push(Node::start(name, &options(etcd)).await);
    }
    connected(&nodes.iter().collect::<Vec<_>>()).await;
    for node in &nodes {
        for region in names {
            let what = format!("{} reads that {region} holds its lease", node.name);
            wait_until(&what, || holder(node, region).as_deref() == Some(region)).await;
        }
    }
    let Ok(nodes) = nodes.try_into() else {
        panic!("{N} regions")
    };
    nodes
}

fn lease(node: &Node, region: &str) -> Option<LeaseState> {
    match node.name == region {
        true => node.status().lease,
        false => node.sees(region)?.lease,
    }
}

fn holder(node: &Node, region: &str) -> Option<String> {
    lease(node, region)?.holder
}

fn has_own_replica(node: &Node) -> bool {
    let replicas = node.pool().replicas();
    let mut own = replicas
        .iter()
        .filter(|r| r.name == node.engines[0].addr.to_string());
    own.any(|replica| replica.availability.as_ref() == "available")
}

#[tokio::test]
async fn a_dead_regions_replica_is_leased_and_given_back_when_it_returns() {
    let Some(etcd) = Etcd::start("returns").unwrap() else {
        return;
    };
    let [us, mut eu] = regions(&etcd, ["us", "eu"]).await;
    let before = lease(&us, "eu").unwrap().revision;
    eu.kill();
    wait_until("us has eu's replica", || us.holds(&eu)).await;
    assert_eq!(holder(&us, "eu").as_deref(), Some("us"));
    assert_eq!(lease(&us, "eu").unwrap().revision, before + 1);
    assert_eq!(us.sees("eu").unwrap().leased, 1);
    wait_until("requests can go there", || {
        let replicas = us.pool().replicas();
        replicas
            .iter()
            .all(|replica| replica.availability.as_ref() == "available")
    })
    .await;

    eu.run().await;
    connect(&[&us, &eu]);
    wait_until("us gives it back", || !us.holds(&eu)).await;
    wait_until("eu decides about its replica", || {
        holder(&eu, "eu").as_deref() == Some("eu") && has_own_replica(&eu)
    })
    .await;
    assert_eq!(us.members(), [(us.engines[0].addr, false)]);
}

#[tokio::test]
async fn an_owner_leaves_its_replica_to_the_holder_until_it_gets_it_back() {
    let Some(etcd) = Etcd::start("owner").unwrap() else {
        return;
    };
    let [us, mut eu] = regions(&etcd, ["us", "eu"]).await;
    eu.kill();
    wait_until("us has eu's replica", || us.holds(&eu)).await;
    eu.run().await;
    wait_until("eu reads that us holds its lease", || {
        holder(&eu, "eu").as_deref() == Some("us") && !has_own_replica(&eu)
    })
    .await;
    wait_until("eu has it back", || has_own_replica(&eu)).await;
    wait_until("us has dropped it", || !us.holds(&eu)).await;
}

#[tokio::test]
async fn an_address_outside_the_networks_is_not_used() {
    let Some(etcd) = Etcd::start("networks").unwrap() else {
        return;
    };
    let [mut us, mut eu] = regions(&etcd, ["us", "eu"]).await;
    us.networks = "10.0.0.0/8";
    connect(&[&us, &eu]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    eu.kill();
    let what = "us leaves eu's replica alone";
    throughout(what, Duration::from_secs(3), || !us.holds(&eu)).await;
}

#[tokio::test]
async fn a_leased_replica_is_drained_before_it_leaves() {
    let Some(etcd) = Etcd::start("drained").unwrap() else {
        return;
    };
    let [us, mut eu] = regions(&etcd, ["us", "eu"]).await;
    eu.kill();
    wait_until("us has eu's replica", || us.holds(&eu)).await;
    let mut running = Vec::new();
    wait_until("both replicas have a request", || {
        let (ticket, progress) = us.submit(RouteRequest::default());
        if matches!(progress, Submission::Decided(_)) {
            running.push(ticket);
        }
        running.len() == 2
    })
    .await;

    eu.run().await;
    connect(&[&us, &eu]);
    wait_until("it gets nothing new", || {
        let replicas = us.pool().replicas();
        let draining = replicas
            .iter()
            .filter(|r| r.availability.as_ref() == "draining");
        draining.count() == 1
    })
    .await;
    let what = "it stays as long as it is busy";
    throughout(what, Duration::from_secs(1), || us.holds(&eu)).await;
    running.clear();
    wait_until("it leaves", || !us.holds(&eu)).await;
}

#[tokio::test]
async fn one_of_two_live_regions_takes_a_lease_also_after_a_restart_of_the_store() {
    let Some(mut etcd) = Etcd::start("one").unwrap() else {
        return;
    };
    let [us, eu, mut asia] = regions(&etcd, ["us", "eu", "asia"]).await;
    etcd.kill();
    tokio::time::sleep(Duration::from_secs(2)).await;
    for node in [&us, &eu, &asia] {
        assert!(
            has_own_replica(node),
            "{} keeps its replica without the store",
            node.name
        );
    }
    etcd.restart().unwrap();
    wait_until("asia holds its lease", || {
        holder(&us, "asia").as_deref() == Some("asia")
    })
    .await;
    asia.kill();
    wait_until("a region has asia's replica", || {
        us.holds(&asia) || eu.holds(&asia)
    })
    .await;
    throughout("only one has it", Duration::from_secs(3), || {
        !(us.holds(&asia) && eu.holds(&asia))
    })
    .await;
    let (taker, other) = if us.holds(&asia) {
        (&us, &eu)
    } else {
        (&eu, &us)
    };
    wait_until("the other one reads it", || {
        holder(other, "asia").as_deref() == Some(taker.name)
    })
    .await;
}

#[tokio::test]
async fn a_region_without_envoy_gives_its_lease_up_until_its_envoy_returns() {
    let Some(etcd) = Etcd::start("envoy").unwrap() else {
        return;
    };
    let [us, mut eu] = regions(&etcd, ["us", "eu"]).await;
    eu.kill_envoy();
    wait_until("us has eu's replica", || us.holds(&eu)).await;
    eu.connect_envoy().await;
    wait_until("us gives it back", || !us.holds(&eu)).await;
}

#[tokio::test]
async fn a_region_that_stops_in_good_order_gives_its_lease_up() {
    let Some(etcd) = Etcd::start("stops").unwrap() else {
        return;
    };
    let [us, mut eu] = regions(&etcd, ["us", "eu"]).await;
    eu.stop().await;
    wait_until("us has eu's replica", || us.holds(&eu)).await;
}

#[tokio::test]
async fn regions_learn_of_each_other_by_the_store_and_forget_a_region_that_is_gone() {
    let Some(etcd) = Etcd::start("members").unwrap() else {
        return;
    };
    let mut us = Node::with("us", "", vec![FakeEngine::start(vllm(0)).await]);
    us.advertise(&options(&etcd));
    us.run().await;
    let mut eu = Node::with("eu", "", vec![FakeEngine::start(vllm(0)).await]);
    eu.advertise(&options(&etcd));
    eu.run().await;
    for (node, other) in [(&us, "eu"), (&eu, "us")] {
        wait_until("the store names the other region", || {
            node.sees(other)
                .is_some_and(|peer| peer.source == PeerSource::Store)
        })
        .await;
    }
    wait_until("us forwards to eu", || {
        us.availability("eu") == Some(isotherm_router::PeerAvailability::Available)
    })
    .await;
    eu.kill();
    // No configuration gives a network to eu's replicas, so nothing is taken, and the member goes with its lease.
    wait_until("us forgets eu", || us.sees("eu").is_none()).await;
    assert!(!us.holds(&eu));
}
