//! Queues, messages and connections are bounded.

use std::sync::atomic::Ordering;

use isotherm_ext_proc::peering::wire::{Envelope, Heartbeat, Payload, PoolReport};
use isotherm_ext_proc::peering::{
    Dialer, LinkError, LinkEvent, MESSAGE_BYTES_MAX, Message, PeerEndpoint, SendError,
};
use isotherm_ext_proc::pool::{SharedPlacement, SharedTarget};
use isotherm_fingerprint::BlockHash;
use tokio::sync::mpsc;

use crate::raw::{self, RAW_SESSION};
use crate::service::{Client, Service, ping_message, plain, timeouts, tls_identity, wait_until};

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
        charge: None,
    };
    Message::Placements(vec![("model".into(), placement)])
}

#[tokio::test]
async fn a_link_to_a_sibling_that_does_not_read_buffers_a_bounded_number_of_messages() {
    let eu = Service::start(plain("eu", &[])).await;
    eu.recorder.is_stuck.store(true, Ordering::SeqCst);
    let mut sibling = Client::start(&plain("eu", &[]), "eu", eu.address, timeouts());
    sibling.wait_until_up().await;
    let batch = batch(300);
    let mut sent = 0;
    for _ in 0..10_000 {
        match sibling.dialer.send(&batch) {
            Ok(()) => sent += 1,
            Err(error) => assert_eq!(error, SendError::Full),
        }
        tokio::task::yield_now().await;
    }
    // HTTP/2's window of two megabytes, and the send queue.
    assert!(sent < 2_000, "{sent}");
    assert_eq!(eu.recorder.count(), 1);
    eu.recorder.is_stuck.store(false, Ordering::SeqCst);
    wait_until(|| eu.recorder.count() == sent).await;
    assert!(
        eu.recorder
            .messages
            .lock()
            .unwrap()
            .iter()
            .all(|(_, _, message)| *message == batch)
    );
}

#[tokio::test]
async fn a_message_beyond_the_bounds_of_the_peer_is_not_sent() {
    let eu = Service::start(plain("eu", &[])).await;
    let mut sibling = Client::start(&plain("eu", &[]), "eu", eu.address, timeouts());
    sibling.wait_until_up().await;
    assert_eq!(
        sibling.dialer.send(&batch(100_000)),
        Err(SendError::TooLong)
    );
    assert_eq!(sibling.dialer.send(&batch(1_000)), Err(SendError::TooLong));
    sibling.dialer.send(&batch(500)).unwrap();
    wait_until(|| eu.recorder.count() == 1).await;
}

#[tokio::test]
async fn a_service_stops_replying_to_a_caller_that_does_not_read() {
    let eu = Service::start(plain("eu", &["us"])).await;
    eu.recorder.pools.store(1_000, Ordering::SeqCst);
    let (sender, mut events) = mpsc::channel(1);
    let peer = PeerEndpoint {
        region: "eu".into(),
        address: eu.address.to_string(),
    };
    let us = Dialer::spawn(plain("us", &["eu"]), peer, timeouts(), (), sender);
    let event = events.recv().await.unwrap().1;
    let LinkEvent::Up { session, .. } = event else {
        panic!("not up: {event:?}");
    };
    // Each heartbeat has some 30 KB, so a few hundred would be ten megabytes.
    for seq in 1..=2_000 {
        us.send(&ping_message(session, seq)).unwrap();
        tokio::time::sleep(std::time::Duration::from_micros(500)).await;
    }
    let replies = eu.recorder.count();
    assert!(replies < 400, "{replies}");
}

#[tokio::test]
async fn a_message_that_is_too_long_ends_only_its_stream() {
    let eu = Service::start(plain("eu", &["us"])).await;
    let mut other = Client::start(&plain("us", &["eu"]), "eu", eu.address, timeouts());
    let session = other.wait_until_up().await;
    for _ in 0..20 {
        let (sender, mut replies) = raw::stream(eu.address, raw::hello("us")).await.unwrap();
        replies.message().await.unwrap();
        let flood = Envelope {
            session: RAW_SESSION,
            payload: Some(Payload::Heartbeat(Heartbeat {
                software_version: "r".repeat(2 * MESSAGE_BYTES_MAX),
                ..Heartbeat::default()
            })),
        };
        sender.send(flood).await.unwrap();
        // The service sends a status, or the stream just ends.
        let _ = replies.message().await;
    }
    other.ping(session, 1).await;
    assert_eq!(eu.recorder.count(), 1);
}

#[tokio::test]
async fn a_heartbeat_with_too_many_pools_is_refused() {
    let eu = Service::start(plain("eu", &["us"])).await;
    let (sender, mut replies) = raw::stream(eu.address, raw::hello("us")).await.unwrap();
    replies.message().await.unwrap();
    // The names are short, so the message is not too long.
    let pool = PoolReport {
        model: "m".into(),
        ..PoolReport::default()
    };
    let heartbeat = Envelope {
        session: RAW_SESSION,
        payload: Some(Payload::Heartbeat(Heartbeat {
            pools: vec![pool; 10_000],
            ..Heartbeat::default()
        })),
    };
    sender.send(heartbeat).await.unwrap();
    let refused = replies.message().await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert_eq!(eu.recorder.count(), 0);
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
        assert!(open.len() < 100);
        open.push(connect().await.unwrap());
        let mut us = Client::start(&us, "eu", eu.address, timeouts());
        if let LinkEvent::Down { error, .. } = us.next().await {
            break error;
        }
    };
    assert!(open.len() >= 60, "{}", open.len());
    assert!(
        matches!(&error, LinkError::Refused(reason) if reason.contains("ResourceExhausted")),
        "{error}"
    );
    // The service cuts further connections.
    while !eu
        .recorder
        .rejections
        .lock()
        .unwrap()
        .iter()
        .any(|why| why.contains("far"))
    {
        assert!(open.len() < 200);
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
