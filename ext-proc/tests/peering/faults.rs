//! What is made of a peer that fails.

use std::sync::atomic::Ordering;

use isotherm_ext_proc::peering::{ConnectPhase, LinkError, UnreachableError};
use tokio::net::TcpListener;

use crate::authority::{Authority, Files};
use crate::raw;
use crate::service::{Calling, Service, eventually, impatient, own, pace, ping};

fn us() -> (
    Authority,
    Files,
    std::sync::Arc<isotherm_ext_proc::peering::LocalIdentity>,
) {
    let authority = Authority::new();
    let files = authority.files("us");
    let own = own("us", files.paths(), &["eu"]);
    (authority, files, own)
}

fn unreachable(why: LinkError) -> UnreachableError {
    assert!(!why.may_live());
    match why {
        LinkError::Unreachable(why) => why,
        other => panic!("not unreachable: {other:?}"),
    }
}

#[tokio::test]
async fn nobody_listens() {
    let (_authority, _files, us) = us();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut us = Calling::start(&us, "eu", address, pace());
    for _ in 0..3 {
        let why = unreachable(us.down().await);
        assert!(matches!(why, UnreachableError::Connect { .. }), "{why}");
    }
}

#[tokio::test]
async fn a_peer_that_accepts_and_never_answers() {
    let (_authority, _files, us) = us();
    // The system accepts; nobody takes the connections from it.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut us = Calling::start(&us, "eu", listener.local_addr().unwrap(), impatient());
    for _ in 0..2 {
        let why = unreachable(us.down().await);
        let step = ConnectPhase::Tls;
        assert!(
            matches!(why, UnreachableError::Timeout { step: at, .. } if at == step),
            "{why}"
        );
    }
}

#[tokio::test]
async fn a_peer_that_completes_tls_and_never_answers() {
    let (authority, _files, us) = us();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let eu = authority.issue("eu.isotherm");
    let server = tokio::spawn(async move {
        let stream = raw::tls_server(listener, &eu).await.unwrap();
        std::future::pending::<()>().await;
        drop(stream);
    });
    let mut us = Calling::start(&us, "eu", address, impatient());
    let why = unreachable(us.down().await);
    let step = ConnectPhase::Hello;
    assert!(
        matches!(why, UnreachableError::Timeout { step: at, .. } if at == step),
        "{why}"
    );
    server.abort();
}

#[tokio::test]
async fn a_peer_that_hangs_up_in_the_middle_of_the_handshake() {
    let (_authority, _files, us) = us();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let mut us = Calling::start(&us, "eu", address, pace());
    let why = unreachable(us.down().await);
    assert!(matches!(why, UnreachableError::Broken(_)), "{why}");
    server.abort();
}

#[tokio::test]
async fn a_peer_that_falls_silent_is_dialled_again() {
    let (authority, _files, us) = us();
    let files = authority.files("eu");
    let eu = Service::start(own("eu", files.paths(), &["us"])).await;
    let mut us = Calling::start(&us, "eu", eu.address, impatient());
    let first = us.up_again().await;
    eu.recorder.stuck.store(true, Ordering::SeqCst);
    us.dialer.send(&ping(first, 1)).unwrap();
    let why = unreachable(us.down().await);
    assert!(matches!(why, UnreachableError::Silent { .. }), "{why}");
    eu.recorder.stuck.store(false, Ordering::SeqCst);
    let second = us.up_again().await;
    assert_ne!(first, second);
    us.asks(second, 2).await;
}

#[tokio::test]
async fn nothing_is_awaited_of_a_peer_that_was_not_asked() {
    let (authority, _files, us) = us();
    let files = authority.files("eu");
    let eu = Service::start(own("eu", files.paths(), &["us"])).await;
    let pace = impatient();
    let mut us = Calling::start(&us, "eu", eu.address, pace);
    let session = us.up_again().await;
    tokio::time::sleep(pace.silence_max * 3).await;
    us.asks(session, 1).await;
}

#[tokio::test]
async fn a_peer_that_restarts_is_found_again_at_the_same_address() {
    let (authority, _files, us) = us();
    let files = authority.files("eu");
    let eu = Service::start(own("eu", files.paths(), &["us"])).await;
    let address = eu.address;
    let mut us = Calling::start(&us, "eu", address, pace());
    let first = us.up().await;
    us.asks(first, 1).await;
    eu.stop().await;
    assert_eq!(unreachable(us.down().await), UnreachableError::Closed);
    unreachable(us.down().await);
    assert!(us.dialer.send(&ping(first, 2)).is_err());

    let eu = Service::start_at(own("eu", files.paths(), &["us"]), address, pace()).await;
    let second = us.up_again().await;
    assert_ne!(first, second);
    us.asks(second, 3).await;
    // Killed rather than stopped.
    drop(eu);
    unreachable(us.down().await);
}

#[tokio::test]
async fn a_service_that_stops_lets_nobody_in_any_more() {
    let (authority, _files, us) = us();
    let files = authority.files("eu");
    let eu = Service::start(own("eu", files.paths(), &["us"])).await;
    // Somebody keeps it from ending: a connection that nobody closes.
    let issued = authority.issue("us.isotherm");
    let open = raw::tls_client(eu.address, &authority.pem, Some(&issued)).await;
    let mut us = Calling::start(&us, "eu", eu.address, pace());
    us.up().await;
    eu.begin_to_stop();
    assert_eq!(unreachable(us.down().await), UnreachableError::Closed);
    // What had been accepted at that moment may still have to break.
    while !matches!(
        unreachable(us.down().await),
        UnreachableError::Connect { .. }
    ) {}
    drop(open);
    eu.stop().await;
}

#[tokio::test]
async fn a_name_with_several_addresses_is_tried_through() {
    let (authority, _files, us) = us();
    let files = authority.files("eu");
    // Only one of the addresses that the name may have.
    let eu = Service::start(own("eu", files.paths(), &["us"])).await;
    let address = format!("localhost:{}", eu.address.port());
    let mut us = Calling::start(&us, "eu", address, pace());
    let session = us.up().await;
    us.asks(session, 1).await;
}

#[tokio::test]
async fn a_redial_drops_the_link_and_waits_for_no_pause() {
    let (authority, _files, us) = us();
    let files = authority.files("eu");
    let eu = Service::start(own("eu", files.paths(), &["us"])).await;
    let mut us_calls = Calling::start(&us, "eu", eu.address, pace());
    let first = us_calls.up().await;
    us_calls.dialer.redial();
    let second = us_calls.up().await;
    assert_ne!(first, second);
    eventually(|| eu.recorder.open.lock().unwrap().len() == 1).await;

    let address = eu.address;
    drop(eu);
    let mut slow = pace();
    slow.pause_min = crate::service::PATIENCE * 10;
    slow.pause_max = slow.pause_min;
    let mut us_waits = Calling::start(&us, "eu", address, slow);
    unreachable(us_waits.down().await);
    let _eu = Service::start_at(own("eu", files.paths(), &["us"]), address, pace()).await;
    us_waits.dialer.redial();
    us_waits.up().await;
}
