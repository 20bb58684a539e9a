//! Regions over mutual TLS: who shows the wrong certificate lives, and is not used.

use std::time::Duration;

use isotherm_ext_proc::regions::RegionState;
use isotherm_router::PeerAvailability;

use super::authority::Authority;
use super::world::{Node, connect, connected, throughout, wait_until};

#[tokio::test]
async fn a_region_with_a_wrong_certificate_is_refused_until_it_has_a_right_one() {
    let (right, wrong) = (Authority::new(), Authority::named("another authority"));
    let issue = |region: &str| right.issue(&format!("{region}.isotherm"));
    let us = Node::start_with_tls("us", &issue("us"), &right).await;
    let eu = Node::start_with_tls("eu", &issue("eu"), &right).await;
    let forged = wrong.issue("asia.isotherm");
    let asia = Node::start_with_tls("asia", &forged, &wrong).await;
    connect(&[&us, &eu, &asia]);
    for (node, other) in [(&us, "eu"), (&eu, "us")] {
        wait_until("the others hear each other", || {
            node.availability(other) == Some(PeerAvailability::Available)
        })
        .await;
        wait_until("asia is refused", || {
            node.sees("asia").unwrap().state == RegionState::Refused
        })
        .await;
        let seen = node.sees("asia").unwrap();
        assert_eq!(seen.link.as_ref(), "refused");
        assert!(seen.link.reason().unwrap().contains("TLS"), "{seen:?}");
    }
    throughout(
        "nothing goes there, and nothing is taken",
        Duration::from_secs(2),
        || us.availability("asia") != Some(PeerAvailability::Available) && !us.holds(&asia),
    )
    .await;

    asia.write_certificate(&issue("asia"), &right);
    connected(&[&us, &eu, &asia]).await;
}
