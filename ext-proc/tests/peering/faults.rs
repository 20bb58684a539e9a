//! Links to peers that fail.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt as _;
use isotherm_ext_proc::config::Address;
use isotherm_ext_proc::peering::{LinkError, LocalIdentity, Message, encode};
use tokio::net::TcpListener;

use crate::authority::Authority;
use crate::raw;
use crate::service::{Client, Service, short_timeouts, timeouts, tls_identity};

fn us() -> (Authority, Arc<LocalIdentity>) {
    let authority = Authority::new();
    let identity = tls_identity(&authority, "us", &["eu"]);
    (authority, identity)
}

fn unreachable(error: LinkError) -> String {
    match error {
        LinkError::Unreachable(reason) => reason,
        other => panic!("not unreachable: {other:?}"),
    }
}

#[tokio::test]
async fn a_peer_that_does_not_listen_is_unreachable() {
    let (_, us) = us();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut us = Client::start(&us, "eu", address, timeouts());
    for _ in 0..3 {
        let error = unreachable(us.wait_until_down().await);
        assert!(
            error.starts_with("the connection failed: Connection refused"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_peer_that_accepts_and_never_starts_tls_times_out() {
    let (_, us) = us();
    // The system accepts connections; the test does not.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut us = Client::start(&us, "eu", listener.local_addr().unwrap(), short_timeouts());
    for _ in 0..2 {
        let error = unreachable(us.wait_until_down().await);
        assert!(error.starts_with("no response within"), "{error}");
    }
}

#[tokio::test]
async fn a_peer_that_completes_tls_and_never_responds_times_out() {
    let (authority, us) = us();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let eu = authority.issue("eu.isotherm");
    let server = tokio::spawn(async move {
        let stream = raw::tls_server(listener, &eu).await.unwrap();
        std::future::pending::<()>().await;
        drop(stream);
    });
    let mut us = Client::start(&us, "eu", address, short_timeouts());
    let error = unreachable(us.wait_until_down().await);
    assert!(error.starts_with("no response within"), "{error}");
    server.abort();
}

#[tokio::test]
async fn a_peer_that_disconnects_during_the_handshake_is_unreachable() {
    let (_, us) = us();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let mut us = Client::start(&us, "eu", address, timeouts());
    let error = unreachable(us.wait_until_down().await);
    assert!(error.starts_with("the connection failed"), "{error}");
    server.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_falls_silent_is_called_again() {
    let (authority, us) = us();
    let eu = Service::start_eu(&authority).await;
    let mut us = Client::start(&us, "eu", eu.address, short_timeouts());
    us.wait_until_up_again().await;
    eu.recorder.is_stuck.store(true, Ordering::SeqCst);
    let error = unreachable(us.wait_until_down_again().await);
    assert!(error.starts_with("no response within"), "{error}");
    eu.recorder.is_stuck.store(false, Ordering::SeqCst);
    us.wait_until_up_again().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn several_pings_at_once_wait_for_a_slow_peer() {
    let (authority, us) = us();
    let eu = Service::start_eu(&authority).await;
    let mut us = Client::start(&us, "eu", eu.address, timeouts());
    us.wait_until_up().await;
    eu.recorder.is_stuck.store(true, Ordering::SeqCst);
    let before = eu.recorder.count();
    while eu.recorder.count() < before + 3 {
        us.wait_until_up().now_or_never();
        tokio::time::sleep(timeouts().interval).await;
    }
    eu.recorder.is_stuck.store(false, Ordering::SeqCst);
    for _ in 0..20 {
        us.wait_until_up().await;
    }
}

#[tokio::test]
async fn a_peer_that_restarts_at_the_same_address_is_reconnected() {
    let (authority, us) = us();
    let eu = Service::start_eu(&authority).await;
    let address = eu.address;
    let mut us = Client::start(&us, "eu", address, timeouts());
    us.wait_until_up().await;
    eu.stop().await;
    unreachable(us.wait_until_down_again().await);
    assert!(!us.link.send(encode(&Message::Ping).unwrap()));

    let restarted = tls_identity(&authority, "eu", &["us"]);
    let eu = Service::start_at(restarted, address).await;
    us.wait_until_up_again().await;
    // The service is killed, not stopped.
    drop(eu);
    unreachable(us.wait_until_down_again().await);
}

#[tokio::test]
async fn a_service_that_stops_accepts_no_connections() {
    let (authority, us) = us();
    let eu = Service::start_eu(&authority).await;
    let issued = authority.issue("us.isotherm");
    let open = raw::tls_client(eu.address, &authority.pem, Some(&issued)).await;
    let mut us = Client::start(&us, "eu", eu.address, timeouts());
    us.wait_until_up().await;
    eu.begin_to_stop();
    // A connection that was accepted just before may still break.
    while !unreachable(us.wait_until_down_again().await)
        .starts_with("the connection failed: Connection refused")
    {}
    // A caller that keeps its connection open does not delay the end.
    eu.stop().await;
    drop(open);
}

#[tokio::test]
async fn each_address_of_a_name_is_tried() {
    let (authority, us) = us();
    // The service listens on one of the addresses of `localhost`.
    let eu = Service::start_eu(&authority).await;
    let address = Address::Name("localhost".to_owned(), eu.address.port());
    let mut us = Client::start(&us, "eu", address, timeouts());
    us.wait_until_up().await;
}
