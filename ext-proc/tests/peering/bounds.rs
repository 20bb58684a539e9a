//! Queues, messages and connections are bounded.

use std::sync::atomic::Ordering;
use std::time::Duration;

use isotherm_ext_proc::peering::{LinkError, MESSAGE_BYTES_MAX, Message, PATH, encode};
use isotherm_ext_proc::pool::{SharedPlacement, SharedTarget};
use isotherm_fingerprint::BlockHash;
use isotherm_regions::Heartbeat;
use isotherm_router::PeerReport;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::raw;
use crate::service::{Client, Service, plain, timeouts, tls_identity, wait_until};

fn batch(blocks: u32) -> Message {
    let block = |n| BlockHash {
        hash: u64::MAX - u64::from(n),
        end_bytes: n * 256,
    };
    let placement = SharedPlacement {
        target: SharedTarget::Replica(([10, 0, 0, 1], 8000).into()),
        parent: Some(block(0)),
        blocks: (1..=blocks).map(block).collect(),
        uncached_tokens: Some(64 * blocks),
    };
    Message::Placements(vec![("model".into(), placement)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_link_to_a_sibling_that_does_not_read_buffers_a_bounded_number_of_messages() {
    let eu = Service::start(plain("eu", &[])).await;
    let mut sibling = Client::start(&plain("eu", &[]), "eu", eu.address, timeouts());
    sibling.wait_until_up().await;
    eu.recorder.is_stuck.store(true, Ordering::SeqCst);
    let mut sent = Vec::new();
    for number in 0..10_000 {
        let batch = batch(1 + number % 300);
        if sibling.link.send(encode(&batch).unwrap()) {
            sent.push(batch);
        }
        tokio::task::yield_now().await;
    }
    assert!((10..100).contains(&sent.len()), "{}", sent.len());
    assert!(eu.recorder.one_way().len() <= 1);
    eu.recorder.is_stuck.store(false, Ordering::SeqCst);
    wait_until(|| eu.recorder.one_way().len() == sent.len()).await;
    assert_eq!(eu.recorder.one_way(), sent, "the order is kept");
}

#[tokio::test]
async fn a_service_stops_replying_to_a_caller_that_does_not_read() {
    let eu = Service::start(plain("eu", &["us"])).await;
    eu.recorder.pools.store(1_000, Ordering::SeqCst);
    let mut socket = TcpStream::connect(eu.address).await.unwrap();
    let ping = raw::request(PATH, &Message::Ping);
    // Each heartbeat has some 30 KB, so a few hundred would be ten megabytes.
    let pings = ping.repeat(200_000);
    let sent = socket.write_all(&pings);
    let sent = tokio::time::timeout(Duration::from_secs(2), sent).await;
    assert!(sent.is_err(), "the service has read all");
    let replies = eu.recorder.count();
    assert!((1..600).contains(&replies), "{replies}");
}

#[tokio::test]
async fn a_message_that_is_too_long_or_not_valid_is_refused() {
    let eu = Service::start(plain("eu", &["us"])).await;
    // The names are short, so the message is not too long.
    let many_pools = Heartbeat {
        pools: vec![("m".into(), PeerReport::default()); 2_000],
        ..Heartbeat::default()
    };
    let long = Heartbeat {
        version: "r".repeat(2 * MESSAGE_BYTES_MAX).into(),
        ..Heartbeat::default()
    };
    for (heartbeat, status) in [(many_pools, "400"), (long, "413")] {
        let request = raw::request(PATH, &Message::Heartbeat(heartbeat));
        assert_eq!(raw::status(eu.address, &request).await, status);
    }
    assert_eq!(eu.recorder.count(), 0);
    let mut other = Client::start(&plain("us", &["eu"]), "eu", eu.address, timeouts());
    other.wait_until_up().await;
}

#[tokio::test]
async fn the_connections_of_a_region_are_limited() {
    let authority = crate::authority::Authority::new();
    let eu = Service::start_eu(&authority).await;
    let raw_us = authority.issue("us.isotherm");
    let connect = || raw::tls_client(eu.address, &authority.pem, Some(&raw_us));
    let us = tls_identity(&authority, "us", &["eu"]);
    let mut open = Vec::new();
    // A service beyond the limit gets a status, and does not take the region for dead.
    let error = loop {
        assert!(open.len() < 200);
        for _ in 0..16 {
            open.push(connect().await.unwrap());
        }
        let mut us = Client::start(&us, "eu", eu.address, timeouts());
        if let Err(error) = us.next().await {
            break error;
        }
    };
    assert!(open.len() >= 100, "{}", open.len());
    assert!(
        matches!(&error, LinkError::Refused(reason) if reason.contains("429")),
        "{error}"
    );
    // The service cuts further connections.
    let is_cut = |why: &String| why.contains("far");
    while !eu.recorder.rejections.lock().unwrap().iter().any(is_cut) {
        assert!(open.len() < 300);
        open.extend(connect().await);
        tokio::task::yield_now().await;
    }
    // The limit of `us` does not affect this region, and `us` may connect again when connections have closed.
    let sibling = tls_identity(&authority, "eu", &[]);
    Client::start(&sibling, "eu", eu.address, timeouts())
        .wait_until_up()
        .await;
    drop(open);
    Client::start(&us, "eu", eu.address, timeouts())
        .wait_until_up_again()
        .await;
}
