//! Replicas of a dead region: adopted by one region, remembered over restarts, and returned.

use std::time::Duration;

use isotherm_ext_proc::pool::{RouteRequest, Submission};
use isotherm_ext_proc::regions::RegionsStatus;
use isotherm_regions::RegionState;

use super::world::{Node, connect, connected, throughout, wait_until};

/// Waits until every region could be adopted: each other region has its record with two successor lists.
async fn settled(nodes: &[&Node]) {
    connected(nodes).await;
    // A successor list counts once there is one before it, which takes a few heartbeats.
    for node in nodes {
        for other in nodes.iter().filter(|other| other.name != node.name) {
            let what = format!("{} has the record of {}", node.name, other.name);
            wait_until(&what, || {
                node.sees(other.name).is_some_and(|seen| seen.replicas == 1)
                    && std::fs::read_to_string(node.state_file())
                        .is_ok_and(|text| text.contains(&other.engines[0].addr.to_string()))
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_dead_regions_replica_is_adopted_and_given_back_when_it_returns() {
    let us = Node::start("us", "").await;
    let mut eu = Node::start("eu", "").await;
    settled(&[&us, &eu]).await;
    eu.kill();
    wait_until("us adopts eu's replica", || us.holds(&eu)).await;
    let seen = us.sees("eu").unwrap();
    assert_eq!((seen.state, seen.adopted), (RegionState::Dead, 1));
    wait_until("requests can go there", || {
        us.pool()
            .replicas()
            .iter()
            .all(|replica| replica.availability.as_ref() == "available")
    })
    .await;

    eu.run().await;
    connect(&[&us, &eu]);
    wait_until("us gives it back", || !us.holds(&eu)).await;
    assert_eq!(us.sees("eu").unwrap().adopted, 0);
    assert_eq!(us.members(), [(us.engines[0].addr, false)]);
}

#[tokio::test]
async fn an_address_outside_the_peers_networks_is_neither_probed_nor_adopted() {
    let mut us = Node::start("us", "").await;
    us.networks = "10.0.0.0/8";
    let mut eu = Node::start("eu", "").await;
    settled(&[&us, &eu]).await;
    eu.kill();
    wait_until("the addresses are rejected", || {
        us.status().addresses_rejected > 0
    })
    .await;
    throughout(
        "us leaves eu's replica alone",
        Duration::from_secs(2),
        || !us.holds(&eu),
    )
    .await;
}

#[tokio::test]
async fn an_adopted_replica_is_drained_before_it_leaves() {
    let us = Node::start("us", "").await;
    let mut eu = Node::start("eu", "").await;
    settled(&[&us, &eu]).await;
    eu.kill();
    wait_until("us adopts eu's replica", || us.holds(&eu)).await;
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
    throughout(
        "it stays as long as it is busy",
        Duration::from_secs(1),
        || us.holds(&eu),
    )
    .await;
    running.clear();
    wait_until("it leaves", || !us.holds(&eu)).await;
}

#[tokio::test]
async fn one_of_two_live_regions_adopts() {
    let us = Node::start("us", "").await;
    let eu = Node::start("eu", "").await;
    let mut asia = Node::start("asia", "").await;
    settled(&[&us, &eu, &asia]).await;
    asia.kill();
    wait_until("a region adopts asia's replica", || {
        us.holds(&asia) || eu.holds(&asia)
    })
    .await;
    throughout("only one has it", Duration::from_secs(3), || {
        !(us.holds(&asia) && eu.holds(&asia))
    })
    .await;
    let (adopter, other) = if us.holds(&asia) {
        (&us, &eu)
    } else {
        (&eu, &us)
    };
    wait_until("the other one is told", || {
        other.sees("asia").unwrap().adopted_by == [adopter.name]
    })
    .await;
}

#[tokio::test]
async fn a_region_without_envoy_is_adopted_until_its_envoy_returns() {
    let us = Node::start("us", "").await;
    let mut eu = Node::start("eu", "").await;
    settled(&[&us, &eu]).await;
    eu.kill_envoy();
    wait_until("us adopts eu's replica", || us.holds(&eu)).await;
    assert_eq!(us.sees("eu").unwrap().state, RegionState::NoGateway);
    eu.connect_envoy().await;
    wait_until("us gives it back", || !us.holds(&eu)).await;
}

#[tokio::test]
async fn a_restarted_service_remembers_the_replicas_of_other_regions() {
    let mut us = Node::start("us", "").await;
    let mut eu = Node::start("eu", "").await;
    settled(&[&us, &eu]).await;
    let eu_was_at = eu.links();
    eu.kill();
    us.kill();
    let text = std::fs::read_to_string(us.state_file()).unwrap();
    assert!(text.contains(&eu.engines[0].addr.to_string()), "{text}");

    // The configuration has the old address of the peer, where no service listens.
    us.run_without_envoy(&[("eu", eu_was_at)], &[]);
    us.connect_envoy().await;
    wait_until("the record comes from the file", || {
        us.sees("eu").is_some_and(|eu| eu.replicas == 1)
    })
    .await;
    wait_until("us adopts what it remembers", || us.holds(&eu)).await;
}

#[tokio::test]
async fn a_service_with_a_broken_state_file_starts_and_learns_the_records_again() {
    let mut us = Node::start("us", "").await;
    let eu = Node::start("eu", "").await;
    settled(&[&us, &eu]).await;
    us.kill();
    std::fs::write(us.state_file(), "{ not a state").unwrap();
    us.run().await;
    settled(&[&us, &eu]).await;
    let aside = us.state_file().with_extension("json.broken");
    assert_eq!(std::fs::read_to_string(aside).unwrap(), "{ not a state");
}

#[tokio::test]
async fn without_live_replicas_only_the_operator_can_declare_a_region_lost() {
    let us = Node::start("us", "").await;
    let mut eu = Node::start("eu", "").await;
    settled(&[&us, &eu]).await;
    assert!(us.handle().declare_lost("mars", true).is_err());
    eu.kill();
    let engine = eu.engines.remove(0);
    let address = engine.addr;
    drop(engine);
    wait_until("eu is lost", || {
        us.sees("eu").unwrap().state == RegionState::Lost
    })
    .await;
    throughout("it is not dead", Duration::from_secs(3), || {
        us.sees("eu").unwrap().state == RegionState::Lost
    })
    .await;
    us.handle().declare_lost("eu", true).unwrap();
    wait_until("it is declared lost", || {
        us.sees("eu").unwrap().state == RegionState::DeclaredLost
    })
    .await;
    let RegionsStatus { peers, .. } = us.status();
    assert_eq!(peers[0].adopted, 0, "no replica answers at {address}");
}
