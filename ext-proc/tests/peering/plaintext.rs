//! Links without TLS, and the checks of each request.

use std::net::SocketAddr;
use std::sync::Arc;

use isotherm_ext_proc::peering::{LinkError, Message};

use crate::raw;
use crate::service::{Client, Service, plain, timeouts};

#[tokio::test]
async fn a_loopback_link_needs_no_tls() {
    let eu = Service::start(plain("eu", &["us"])).await;
    let mut us = Client::start(&plain("us", &["eu"]), "eu", eu.address, timeouts());
    us.wait_until_up().await;
    assert_eq!(&*eu.recorder.messages.lock().unwrap()[0].0, "us");
}

#[tokio::test]
async fn a_link_beyond_loopback_needs_tls() {
    let us = plain("us", &["eu"]);
    let mut client = Client::start(
        &us,
        "eu",
        SocketAddr::from(([10, 1, 2, 3], 9004)),
        timeouts(),
    );
    let error = client.wait_until_down().await;
    assert!(
        matches!(&error, LinkError::Unreachable(reason) if reason.contains("not a loopback address")),
        "{error}"
    );
}

#[tokio::test]
async fn a_service_of_another_region_is_refused() {
    let asia = Service::start(plain("asia", &["us"])).await;
    let mut us = Client::start(&plain("us", &["eu"]), "eu", asia.address, timeouts());
    let error = us.wait_until_down().await;
    assert!(
        matches!(&error, LinkError::Refused(reason) if reason.contains("the region `asia`")),
        "{error}"
    );
}

#[tokio::test]
async fn a_service_refuses_a_link_to_itself() {
    let us = plain("us", &[]);
    let service = Service::start(Arc::clone(&us)).await;
    let mut us = Client::start(&us, "us", service.address, timeouts());
    let error = us.wait_until_down().await;
    assert!(
        matches!(&error, LinkError::Refused(reason) if reason.contains("leads back to this service")),
        "{error}"
    );
}

#[tokio::test]
async fn a_caller_that_is_no_peer_is_refused() {
    let eu = Service::start(plain("eu", &["us"])).await;
    let mut mars = Client::start(&plain("mars", &["eu"]), "eu", eu.address, timeouts());
    let error = mars.wait_until_down().await;
    assert!(
        matches!(&error, LinkError::Refused(reason) if reason.contains("403")),
        "{error}"
    );
}

#[tokio::test]
async fn a_caller_with_another_protocol_version_is_refused() {
    let eu = Service::start(plain("eu", &["us"])).await;
    let request = raw::request("/isotherm/peering/v1", &Message::Ping);
    assert_eq!(raw::status(eu.address, &request).await, "404");
    assert_eq!(eu.recorder.count(), 0);
}
