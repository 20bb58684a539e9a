//! Links without TLS, and the checks of the Hello.

use std::sync::Arc;

use isotherm_ext_proc::peering::wire::{Envelope, Payload, Ping};
use isotherm_ext_proc::peering::{Acceptor, LinkError, Message};
use isotherm_regions::Session;
use tokio::net::TcpListener;

use crate::raw::{self, RAW_SESSION};
use crate::service::{Client, Recorder, Service, plain, short_timeouts, timeouts, wait_until};

#[tokio::test]
async fn a_loopback_link_needs_no_tls() {
    let eu = Service::start(plain("eu", &["us"])).await;
    let mut us = Client::start(&plain("us", &["eu"]), "eu", eu.address, timeouts());
    let session = us.wait_until_up().await;
    us.ping(session, 1).await;
    assert_eq!(&*eu.recorder.messages.lock().unwrap()[0].0.region, "us");
}

#[tokio::test]
async fn a_link_beyond_loopback_needs_tls() {
    let us = plain("us", &["eu"]);
    let mut client = Client::start(&us, "eu", "10.1.2.3:9004", timeouts());
    let error = client.wait_until_down().await;
    assert!(
        matches!(&error, LinkError::Unreachable(reason) if reason.contains("not a loopback address")),
        "{error}"
    );
    let everywhere = TcpListener::bind("0.0.0.0:0").await.unwrap();
    assert!(Acceptor::new(us, everywhere, timeouts(), Arc::new(Recorder::default())).is_err());
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
    assert_eq!(
        us.wait_until_down().await,
        LinkError::Refused("the address leads back to this service".into())
    );
}

#[tokio::test]
async fn a_caller_that_is_no_peer_is_refused() {
    let eu = Service::start(plain("eu", &["us"])).await;
    let mut mars = Client::start(&plain("mars", &["eu"]), "eu", eu.address, timeouts());
    let error = mars.wait_until_down().await;
    assert!(
        matches!(&error, LinkError::Refused(reason) if reason.contains("PermissionDenied")),
        "{error}"
    );
}

#[tokio::test]
async fn a_caller_with_another_protocol_version_is_refused() {
    let eu = Service::start(plain("eu", &["us"])).await;
    let mut first = raw::hello("us");
    if let Some(Payload::Hello(hello)) = &mut first.payload {
        hello.protocol_version += 1;
    }
    let code = raw::refusal(eu.address, first).await;
    assert_eq!(code, tonic::Code::FailedPrecondition);
}

#[tokio::test]
async fn a_caller_whose_first_message_is_no_hello_is_refused() {
    let eu = plain("eu", &["us"]);
    let address = "127.0.0.1:0".parse().unwrap();
    let eu = Service::start_at(eu, address, short_timeouts()).await;
    let first = Envelope {
        session: 1,
        payload: Some(Payload::Ping(Ping::default())),
    };
    let code = raw::refusal(eu.address, first).await;
    assert_eq!(code, tonic::Code::InvalidArgument);
    assert_eq!(eu.recorder.count(), 0);
}

#[tokio::test]
async fn a_replayed_message_keeps_the_session_number_in_it() {
    let eu = Service::start(plain("eu", &["us"])).await;
    let (sender, mut replies) = raw::stream(eu.address, raw::hello("us")).await.unwrap();
    assert!(matches!(
        replies.message().await.unwrap().unwrap().payload,
        Some(Payload::Hello(_))
    ));
    let recorded = |session, seq| Envelope {
        session,
        payload: Some(Payload::Ping(Ping { seq })),
    };
    for (session, seq) in [(RAW_SESSION, 1), (4, 7), (RAW_SESSION, 1)] {
        sender.send(recorded(session, seq)).await.unwrap();
    }
    wait_until(|| eu.recorder.count() == 3).await;
    let messages = eu.recorder.messages.lock().unwrap().clone();
    let sessions = messages.iter().map(|(caller, session, message)| {
        let Message::Ping(ping) = message else {
            panic!("no ping: {message:?}");
        };
        assert_eq!(caller.session, Session(RAW_SESSION));
        assert_eq!(ping.session, *session);
        (session.0, ping.seq)
    });
    let expected = [(RAW_SESSION, 1), (4, 7), (RAW_SESSION, 1)];
    assert_eq!(sessions.collect::<Vec<_>>(), expected);
}
