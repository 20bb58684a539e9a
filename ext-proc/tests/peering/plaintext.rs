//! Links without TLS, and what a name that is only said is worth.

use std::sync::Arc;

use isotherm_ext_proc::peering::wire::{Envelope, Payload, Ping, Stance};
use isotherm_ext_proc::peering::{
    Acceptor, LinkError, LocalError, LocalIdentity, Message, RefusedError, TransportSecurity,
};
use isotherm_regions::Session;
use tokio::net::TcpListener;

use crate::raw::{self, RAW_SESSION};
use crate::service::{Calling, Recorder, Service, eventually, own_with, pace};

fn plain(region: &str, peers: &[&str]) -> Arc<LocalIdentity> {
    own_with(region, TransportSecurity::Plaintext, peers)
}

#[tokio::test]
async fn on_this_machine_links_need_no_tls() {
    let eu = Service::start(plain("eu", &["us"])).await;
    let mut us = Calling::start(&plain("us", &["eu"]), "eu", eu.address, pace());
    let session = us.up().await;
    us.asks(session, 1).await;
    assert_eq!(&*eu.recorder.heard.lock().unwrap()[0].0.region, "us");
}

#[tokio::test]
async fn beyond_this_machine_they_do() {
    let own = plain("us", &["eu"]);
    let mut us = Calling::start(&own, "eu", "10.1.2.3:9004", pace());
    let why = us.down().await;
    assert!(
        matches!(why, LinkError::Local(LocalError::NotLoopback(_))),
        "{why}"
    );
    assert!(why.may_live());
    let everywhere = TcpListener::bind("0.0.0.0:0").await.unwrap();
    assert!(Acceptor::new(own, everywhere, pace(), Arc::new(Recorder::default())).is_err());
}

#[tokio::test]
async fn a_service_of_another_region_is_refused() {
    let asia = Service::start(plain("asia", &["us"])).await;
    let mut us = Calling::start(&plain("us", &["eu"]), "eu", asia.address, pace());
    let why = us.down().await;
    assert!(
        matches!(&why, LinkError::Refused(RefusedError::OtherRegion { said, .. }) if said == "asia"),
        "{why}"
    );
}

#[tokio::test]
async fn a_service_that_finds_itself_is_told_so() {
    let own = plain("us", &[]);
    let us = Service::start(Arc::clone(&own)).await;
    let mut us = Calling::start(&own, "us", us.address, pace());
    assert_eq!(us.down().await, LinkError::Refused(RefusedError::Itself));
}

#[tokio::test]
async fn who_is_no_peer_is_refused() {
    let eu = Service::start(plain("eu", &["us"])).await;
    let mut mars = Calling::start(&plain("mars", &["eu"]), "eu", eu.address, pace());
    let why = mars.down().await;
    assert!(
        matches!(&why, LinkError::Refused(RefusedError::Status { code, .. }) if *code == tonic::Code::PermissionDenied),
        "{why}"
    );
}

#[tokio::test]
async fn who_speaks_another_version_is_refused() {
    let eu = Service::start(plain("eu", &["us"])).await;
    let mut first = raw::hello("us");
    if let Some(Payload::Hello(hello)) = &mut first.payload {
        hello.protocol += 1;
    }
    let refused = raw::stream(eu.address, first).await;
    let code = refused.map(|_| ()).unwrap_err().code();
    assert_eq!(code, tonic::Code::FailedPrecondition);
}

#[tokio::test]
async fn who_does_not_say_hello_is_turned_away_in_time() {
    let own = plain("eu", &["us"]);
    let address = "127.0.0.1:0".parse().unwrap();
    let eu = Service::start_at(own, address, crate::service::impatient()).await;
    let first = Envelope {
        session: 1,
        payload: Some(Payload::Ping(Ping::default())),
    };
    let refused = raw::stream(eu.address, first).await;
    let code = refused.map(|_| ()).unwrap_err().code();
    assert_eq!(code, tonic::Code::InvalidArgument);
    assert_eq!(eu.recorder.count(), 0);
}

#[tokio::test]
async fn a_replayed_message_arrives_with_the_session_that_it_names() {
    let eu = Service::start(plain("eu", &["us"])).await;
    let (say, mut answers) = raw::stream(eu.address, raw::hello("us")).await.unwrap();
    assert!(matches!(
        answers.message().await.unwrap().unwrap().payload,
        Some(Payload::Hello(_))
    ));
    let recorded = |session, seq| Envelope {
        session,
        payload: Some(Payload::Ping(Ping {
            seq,
            has: None,
            stance: Some(Stance::default()),
        })),
    };
    for (session, seq) in [(RAW_SESSION, 1), (4, 7), (RAW_SESSION, 1)] {
        say.send(recorded(session, seq)).await.unwrap();
    }
    eventually(|| eu.recorder.count() == 3).await;
    let heard = eu.recorder.heard.lock().unwrap().clone();
    let sessions = heard.iter().map(|(caller, session, said)| {
        let Message::Ping(ping) = said else {
            panic!("no ping: {said:?}");
        };
        assert_eq!(caller.session, Session(RAW_SESSION));
        assert_eq!(ping.session, *session);
        (session.0, ping.seq)
    });
    let expected = [(RAW_SESSION, 1), (4, 7), (RAW_SESSION, 1)];
    assert_eq!(sessions.collect::<Vec<_>>(), expected);
}
