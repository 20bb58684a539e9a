//! Links to peers that fail.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use isotherm_ext_proc::peering::{LinkError, LocalIdentity};
use tokio::net::TcpListener;

use crate::authority::Authority;
use crate::raw;
use crate::service::{Client, Service, ping_message, short_timeouts, timeouts, tls_identity};

/// The reason when a peer stops in good order.
const CLOSED: &str = "the other side closed the stream";

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
        assert!(error.starts_with("no connection to"), "{error}");
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
        assert!(
            error.starts_with("the TLS handshake took longer"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_peer_that_completes_tls_and_never_sends_hello_times_out() {
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
    assert!(
        error.starts_with("the other's Hello took longer"),
        "{error}"
    );
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
    assert!(error.starts_with("the connection broke"), "{error}");
    server.abort();
}

#[tokio::test]
async fn a_peer_that_falls_silent_is_redialled() {
    let (authority, us) = us();
    let eu = Service::start_eu(&authority).await;
    let mut us = Client::start(&us, "eu", eu.address, short_timeouts());
    let first = us.wait_until_up_again().await;
    eu.recorder.is_stuck.store(true, Ordering::SeqCst);
    us.dialer.send(&ping_message(first, 1)).unwrap();
    let error = unreachable(us.wait_until_down().await);
    assert!(error.starts_with("no answer for"), "{error}");
    eu.recorder.is_stuck.store(false, Ordering::SeqCst);
    let second = us.wait_until_up_again().await;
    assert_ne!(first, second);
    us.ping(second, 2).await;
}

#[tokio::test]
async fn a_link_without_pings_does_not_time_out() {
    let (authority, us) = us();
    let eu = Service::start_eu(&authority).await;
    let timeouts = short_timeouts();
    let mut us = Client::start(&us, "eu", eu.address, timeouts);
    let session = us.wait_until_up_again().await;
    tokio::time::sleep(timeouts.silence_max * 3).await;
    us.ping(session, 1).await;
}

#[tokio::test]
async fn a_peer_that_restarts_at_the_same_address_is_reconnected() {
    let (authority, us) = us();
    let eu = Service::start_eu(&authority).await;
    let address = eu.address;
    let mut us = Client::start(&us, "eu", address, timeouts());
    let first = us.wait_until_up().await;
    us.ping(first, 1).await;
    eu.stop().await;
    assert_eq!(unreachable(us.wait_until_down().await), CLOSED);
    unreachable(us.wait_until_down().await);
    assert!(us.dialer.send(&ping_message(first, 2)).is_err());

    let restarted = tls_identity(&authority, "eu", &["us"]);
    let eu = Service::start_at(restarted, address, timeouts()).await;
    let second = us.wait_until_up_again().await;
    assert_ne!(first, second);
    us.ping(second, 3).await;
    // The service is killed, not stopped.
    drop(eu);
    unreachable(us.wait_until_down().await);
}

#[tokio::test]
async fn a_service_that_stops_accepts_no_connections() {
    let (authority, us) = us();
    let eu = Service::start_eu(&authority).await;
    // A connection that stays open delays the end of the service.
    let issued = authority.issue("us.isotherm");
    let open = raw::tls_client(eu.address, &authority.pem, Some(&issued)).await;
    let mut us = Client::start(&us, "eu", eu.address, timeouts());
    us.wait_until_up().await;
    eu.begin_to_stop();
    assert_eq!(unreachable(us.wait_until_down().await), CLOSED);
    // A connection that was accepted just before may still break.
    while !unreachable(us.wait_until_down().await).starts_with("no connection to") {}
    drop(open);
    eu.stop().await;
}

#[tokio::test]
async fn each_address_of_a_name_is_tried() {
    let (authority, us) = us();
    // The service listens on one of the addresses of `localhost`.
    let eu = Service::start_eu(&authority).await;
    let address = format!("localhost:{}", eu.address.port());
    let mut us = Client::start(&us, "eu", address, timeouts());
    let session = us.wait_until_up().await;
    us.ping(session, 1).await;
}
