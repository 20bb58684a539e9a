//! Nothing grows without end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use isotherm_ext_proc::peering::wire::{Envelope, Members, Payload, Record};
use isotherm_ext_proc::peering::{
    Dialer, LinkError, LinkEvent, LocalIdentity, MESSAGE_BYTES_MAX, Message, NamedPlacement,
    NamedTarget, PeerEndpoint, RefusedError, SendError, TransportSecurity,
};
use isotherm_fingerprint::BlockHash;
use tokio::sync::mpsc;

use crate::raw::{self, RAW_SESSION};
use crate::service::{Calling, Service, eventually, own_with, pace, ping};

fn plain(region: &str, peers: &[&str]) -> Arc<LocalIdentity> {
    own_with(region, TransportSecurity::Plaintext, peers)
}

fn batch(blocks: u32) -> Message {
    let block = |n| BlockHash {
        hash: u64::MAX - u64::from(n),
        end_bytes: n * 256,
    };
    Message::Placements(vec![NamedPlacement {
        model: "model".into(),
        at: NamedTarget::Replica("10.0.0.1:8000".into()),
        parent: Some(block(0)),
        blocks: (1..=blocks).map(block).collect(),
    }])
}

#[tokio::test]
async fn of_ten_thousand_batches_a_sibling_that_is_stuck_gets_as_many_as_it_has_room_for() {
    let eu = Service::start(plain("eu", &[])).await;
    eu.recorder.stuck.store(true, Ordering::SeqCst);
    let mut sibling = Calling::start(&plain("eu", &[]), "eu", eu.address, pace());
    sibling.up().await;
    let batch = batch(300);
    let mut said = 0;
    for _ in 0..10_000 {
        match sibling.dialer.send(&batch) {
            Ok(()) => said += 1,
            Err(error) => assert_eq!(error, SendError::Full),
        }
        tokio::task::yield_now().await;
    }
    // What is under way, two megabytes, and what waits here.
    assert!(said < 2_000, "{said}");
    assert_eq!(eu.recorder.count(), 1);
    eu.recorder.stuck.store(false, Ordering::SeqCst);
    eventually(|| eu.recorder.count() == said).await;
    assert!(
        eu.recorder
            .heard
            .lock()
            .unwrap()
            .iter()
            .all(|heard| heard.2 == batch)
    );
}

#[tokio::test]
async fn what_the_other_side_would_not_take_is_not_said() {
    let eu = Service::start(plain("eu", &[])).await;
    let mut sibling = Calling::start(&plain("eu", &[]), "eu", eu.address, pace());
    sibling.up().await;
    assert_eq!(
        sibling.dialer.send(&batch(100_000)),
        Err(SendError::TooLong)
    );
    assert_eq!(sibling.dialer.send(&batch(1_000)), Err(SendError::TooLong));
    sibling.dialer.send(&batch(500)).unwrap();
    eventually(|| eu.recorder.count() == 1).await;
}

#[tokio::test]
async fn a_caller_that_does_not_listen_is_not_answered_into_the_blue() {
    let eu = Service::start(plain("eu", &["us"])).await;
    eu.recorder.pools.store(1_000, Ordering::SeqCst);
    let (tell, mut events) = mpsc::channel(1);
    let peer = PeerEndpoint {
        region: "eu".into(),
        address: eu.address.to_string(),
    };
    let us = Dialer::spawn(plain("us", &["eu"]), peer, pace(), (), tell);
    let event = events.recv().await.unwrap().event;
    let LinkEvent::Up { session, .. } = event else {
        panic!("not up: {event:?}");
    };
    // Each answer has some 30 KB, so that a few hundred would be ten megabytes.
    for seq in 1..=2_000 {
        us.send(&ping(session, seq)).unwrap();
        tokio::time::sleep(std::time::Duration::from_micros(500)).await;
    }
    let answered = eu.recorder.count();
    assert!(answered < 400, "{answered}");
}

#[tokio::test]
async fn a_message_that_is_too_long_ends_its_stream_and_nothing_else() {
    let eu = Service::start(plain("eu", &["us"])).await;
    let mut well = Calling::start(&plain("us", &["eu"]), "eu", eu.address, pace());
    let session = well.up().await;
    for _ in 0..20 {
        let (say, mut answers) = raw::stream(eu.address, raw::hello("us")).await.unwrap();
        answers.message().await.unwrap();
        let flood = Envelope {
            session: RAW_SESSION,
            payload: Some(Payload::Record(Record {
                region: "r".repeat(2 * MESSAGE_BYTES_MAX),
                ..Record::default()
            })),
        };
        say.send(flood).await.unwrap();
        // It may be told why, or the stream just ends.
        let _ = answers.message().await;
    }
    well.asks(session, 1).await;
    assert_eq!(eu.recorder.count(), 1);
}

#[tokio::test]
async fn a_record_of_too_many_replicas_is_refused() {
    let eu = Service::start(plain("eu", &["us"])).await;
    let (say, mut answers) = raw::stream(eu.address, raw::hello("us")).await.unwrap();
    answers.message().await.unwrap();
    // Short names: the message is not too long.
    let record = Envelope {
        session: RAW_SESSION,
        payload: Some(Payload::Record(Record {
            region: "us".into(),
            version: 1,
            pools: vec![Members {
                model: "m".into(),
                replicas: vec!["a".into(); 100_000],
            }],
            heirs: None,
        })),
    };
    say.send(record).await.unwrap();
    let refused = answers.message().await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert_eq!(eu.recorder.count(), 0);
}

#[tokio::test]
async fn a_region_has_so_many_connections_and_no_more() {
    let authority = crate::authority::Authority::new();
    let files = authority.files("eu");
    let eu = crate::service::own("eu", files.paths(), &["us"]);
    let eu = Service::start(eu).await;
    let raw_us = authority.issue("us.isotherm");
    let connect = || raw::tls_client(eu.address, &authority.pem, Some(&raw_us));
    let files_us = authority.files("us");
    let us = crate::service::own("us", files_us.paths(), &["eu"]);
    let mut open = Vec::new();
    // A service that finds no room is told so, and does not take the region for dead.
    let why = loop {
        assert!(open.len() < 100);
        open.push(connect().await.unwrap());
        let mut us = Calling::start(&us, "eu", eu.address, pace());
        if let LinkEvent::Down { why, .. } = us.next().await {
            break why;
        }
    };
    assert!(open.len() >= 60, "{}", open.len());
    assert!(
        matches!(why, LinkError::Refused(RefusedError::Status { .. })),
        "{why}"
    );
    // Whoever does not care is cut off.
    while !eu
        .recorder
        .turned_away
        .lock()
        .unwrap()
        .iter()
        .any(|why| why.contains("far"))
    {
        assert!(open.len() < 200);
        open.extend(connect().await);
        tokio::task::yield_now().await;
    }
    // The own region has room all the same, and so has `us` when some are gone.
    let sibling = crate::service::own("eu", files.paths(), &[]);
    Calling::start(&sibling, "eu", eu.address, pace())
        .up()
        .await;
    drop(open);
    Calling::start(&us, "eu", eu.address, pace())
        .up_again()
        .await;
}
