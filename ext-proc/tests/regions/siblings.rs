//! Two services of one region share placements, queues, the gateway and the lease.

use std::net::SocketAddr;
use std::sync::Arc;

use isotherm_ext_proc::pool::RouteRequest;
use isotherm_ext_proc::regions::RegionState;
use isotherm_fingerprint::{BlockHash, Fingerprint};
use isotherm_router::Scope;

use super::fake::{FakeEngine, vllm};
use super::world::{Node, place, wait_until};

/// Two services over the same two replicas.
async fn twins() -> (Node, Node, [FakeEngine; 2]) {
    let engines = [
        FakeEngine::start(vllm(0)).await,
        FakeEngine::start(vllm(0)).await,
    ];
    let mut first = Node::with("us", "", Vec::new());
    let mut second = Node::with("us", "", Vec::new());
    first.run_without_envoy(&[], &[]);
    second.run_without_envoy(&[], &[]);
    tell(&first, &second, &[], &engines);
    for node in [&first, &second] {
        wait_until("the sibling is heard", || {
            let siblings = node.status().siblings;
            siblings.len() == 1 && siblings[0].heartbeat_age_ms.is_some()
        })
        .await;
        wait_until("the replicas are there", || {
            let replicas = node.pool().replicas();
            replicas.len() == 2
                && replicas
                    .iter()
                    .all(|replica| replica.availability.as_ref() == "available")
        })
        .await;
    }
    (first, second, engines)
}

fn tell(first: &Node, second: &Node, peers: &[(&str, SocketAddr)], engines: &[FakeEngine]) {
    let addresses: Vec<_> = engines.iter().map(|engine| engine.addr).collect();
    first.write(peers, &[second.links()], &addresses);
    second.write(peers, &[first.links()], &addresses);
}

fn prompt(hash: u64) -> RouteRequest {
    let blocks = (1..=4)
        .map(|n| BlockHash {
            hash: hash * 10 + n,
            end_bytes: u32::try_from(n).unwrap() * 1_024,
        })
        .collect();
    RouteRequest {
        fingerprint: Arc::new(Fingerprint::new(blocks, 4_096).unwrap()),
        ..RouteRequest::default()
    }
}

/// Prompt bytes that a service knows a replica to hold.
fn known(node: &Node, ask: &RouteRequest, at: &str) -> u32 {
    let candidates = node.pool().explain(ask).candidates;
    let found = candidates.iter().find(|candidate| candidate.name == at);
    found.map_or(0, |candidate| candidate.matched_bytes)
}

#[tokio::test]
async fn a_placement_of_one_service_is_known_to_the_other() {
    let (first, second, _engines) = twins().await;
    for (from, to, hash) in [(&first, &second, 1), (&second, &first, 2)] {
        let ask = prompt(hash);
        let (ticket, progress) = from.submit(ask.clone());
        let at = place(&progress);
        wait_until("the sibling knows where the prompt lies", || {
            known(to, &ask, &at) == 4_096
        })
        .await;
        drop(ticket);
    }
    let counters = first.status().counters;
    assert!(counters.sharing_sent > 0 && counters.sharing_received > 0);
}

#[tokio::test]
async fn queues_are_summed_and_one_envoy_suffices() {
    let (mut first, mut second, engines) = twins().await;
    let eu = Node::start("eu", "").await;
    // The other region hears one of the two; the Envoy is connected to the other.
    second.connect_envoy().await;
    tell(&first, &second, &[("eu", eu.links())], &engines);
    let own: Vec<_> = eu.engines.iter().map(|engine| engine.addr).collect();
    eu.write(&[("us", first.links())], &[], &own);
    wait_until("us has a gateway", || {
        eu.sees("us").is_some_and(|us| us.state == RegionState::Up)
    })
    .await;

    let stay = || RouteRequest {
        scope: Scope::Local,
        ..RouteRequest::default()
    };
    let mut requests: Vec<_> = (0..2).map(|_| second.pool().submit(&stay())).collect();
    requests.extend((0..7).map(|_| second.pool().submit(&stay())));
    let queue = || {
        let peers = eu.pool().peers();
        peers[0].report.map_or(0, |report| report.queue)
    };
    wait_until("eu hears of the queue of the one it does not hear", || {
        queue() == 7
    })
    .await;
    requests.clear();
    wait_until("and of its end", || queue() == 0).await;

    second.kill();
    wait_until("the gateway went with it", || {
        eu.sees("us").unwrap().state == RegionState::NoGateway
    })
    .await;
    first.connect_envoy().await;
    wait_until("there is one again", || {
        eu.sees("us").unwrap().state == RegionState::Up
    })
    .await;
}
