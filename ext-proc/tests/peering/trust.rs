//! Who is let in, and who is believed.

use std::sync::Arc;

use isotherm_ext_proc::peering::{Credentials, CredentialsError, LinkError, Message, RefusedError};
use isotherm_regions::{PoolReplicas, RegionRecord, SuccessorList};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::authority::{self, Authority, Files, Issued};
use crate::raw;
use crate::service::{Calling, Service, eventually, own, own_with, pace};

async fn eu(authority: &Authority) -> (Files, Service) {
    let files = authority.files("eu");
    let service = Service::start(own("eu", files.paths(), &["us"])).await;
    (files, service)
}

fn tls(why: &LinkError) -> &str {
    match why {
        LinkError::Refused(RefusedError::Tls(why)) => why,
        other => panic!("not refused by TLS: {other:?}"),
    }
}

#[tokio::test]
async fn peers_talk_and_know_each_others_names() {
    let authority = Authority::new();
    let (_files, eu) = eu(&authority).await;
    let files = authority.files("us");
    let us = own("us", files.paths(), &["eu"]);
    let mut us = Calling::start(&us, "eu", eu.address, pace());
    let session = us.up().await;
    for seq in 1..=20 {
        let heartbeat = us.asks(session, seq).await;
        assert!(heartbeat.advertisement.adopted.contains("asia"));
    }
    let heard = eu.recorder.heard.lock().unwrap().clone();
    assert_eq!(heard.len(), 20);
    assert!(
        heard
            .iter()
            .all(|(caller, said_on, _)| &*caller.region == "us"
                && caller.session == session
                && *said_on == session)
    );
    assert_eq!(eu.recorder.open.lock().unwrap().len(), 1);
    drop(us);
    eventually(|| eu.recorder.open.lock().unwrap().is_empty()).await;
}

#[tokio::test]
async fn a_sibling_is_one_who_shows_the_own_name() {
    let authority = Authority::new();
    let (files, eu) = eu(&authority).await;
    let sibling = own("eu", files.paths(), &[]);
    let mut sibling = Calling::start(&sibling, "eu", eu.address, pace());
    let session = sibling.up().await;
    sibling.asks(session, 1).await;
    assert_eq!(&*eu.recorder.heard.lock().unwrap()[0].0.region, "eu");
}

#[tokio::test]
async fn a_record_of_ten_thousand_replicas_travels_whole() {
    let authority = Authority::new();
    let (_files, eu) = eu(&authority).await;
    let files = authority.files("us");
    let us = own("us", files.paths(), &["eu"]);
    let mut us = Calling::start(&us, "eu", eu.address, pace());
    us.up().await;
    let replicas = |pool: u32| {
        (0..5_000).map(move |n| format!("[2001:db8::{pool}:{n:x}]:{}", 8000 + n).into())
    };
    let record = Message::Record(Arc::new(RegionRecord {
        region: "us".into(),
        version: 7,
        pools: (0..2)
            .map(|pool| PoolReplicas {
                model: format!("model-{pool}").into(),
                replicas: replicas(pool).collect(),
            })
            .collect(),
        successors: SuccessorList {
            version: 3,
            order: vec!["asia".into(), "eu".into()],
            previous: Some(vec!["eu".into()]),
        },
    }));
    us.dialer.send(&record).unwrap();
    eventually(|| eu.recorder.count() == 1).await;
    assert_eq!(eu.recorder.heard.lock().unwrap()[0].2, record);
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused() {
    // Of another name, and one that only calls itself the same.
    for (name, expected) in [
        ("another", "UnknownIssuer"),
        ("an authority", "BadSignature"),
    ] {
        let (_files, eu) = eu(&Authority::named(name)).await;
        let files = Authority::new().files("us");
        let us = own("us", files.paths(), &["eu"]);
        let mut us = Calling::start(&us, "eu", eu.address, pace());
        let why = us.down().await;
        assert!(tls(&why).contains(expected), "{why}");
        assert_eq!(eu.recorder.count(), 0);
    }
}

#[tokio::test]
async fn a_caller_of_another_authority_is_refused_and_told_so() {
    let (ours, other) = (Authority::new(), Authority::named("another"));
    let (_files, eu) = eu(&ours).await;
    // It believes both, so that it is the server that objects.
    let both = format!("{}{}", ours.pem, other.pem);
    let files = Files::new(&other.issue("us.isotherm"), &both);
    let us = own("us", files.paths(), &["eu"]);
    let mut us = Calling::start(&us, "eu", eu.address, pace());
    for _ in 0..5 {
        let why = us.down().await;
        assert!(tls(&why).contains("UnknownCA"), "{why}");
    }
    assert!(eu.recorder.open.lock().unwrap().is_empty());
    assert!(eu.recorder.turned_away.lock().unwrap()[0].contains("UnknownIssuer"));
}

#[tokio::test]
async fn a_server_of_another_name_is_refused() {
    let authority = Authority::new();
    let files = authority.files("asia");
    let asia = Service::start(own("asia", files.paths(), &["us"])).await;
    let files = authority.files("us");
    let us = own("us", files.paths(), &["eu"]);
    let mut us = Calling::start(&us, "eu", asia.address, pace());
    let why = us.down().await;
    assert!(tls(&why).contains("not valid for name"), "{why}");
}

#[tokio::test]
async fn a_caller_that_is_no_peer_is_refused_and_told_so() {
    let authority = Authority::new();
    let (_files, eu) = eu(&authority).await;
    let files = authority.files("mars");
    let mars = own("mars", files.paths(), &["eu"]);
    let mut mars = Calling::start(&mars, "eu", eu.address, pace());
    for _ in 0..5 {
        tls(&mars.down().await);
    }
    assert!(eu.recorder.open.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_peer_is_let_in_when_it_becomes_one_and_cut_off_when_it_is_none_any_more() {
    let authority = Authority::new();
    let files = authority.files("eu");
    let eu_own = own("eu", files.paths(), &[]);
    let eu = Service::start(Arc::clone(&eu_own)).await;
    let files = authority.files("us");
    let us = own("us", files.paths(), &["eu"]);
    let mut us = Calling::start(&us, "eu", eu.address, pace());
    tls(&us.down().await);
    eu_own.set_peers(["us"]);
    let session = us.up_again().await;
    us.asks(session, 1).await;
    eu_own.set_peers(["asia"]);
    us.dialer.send(&crate::service::ping(session, 2)).unwrap();
    let why = us.down().await;
    assert!(
        matches!(why, LinkError::Refused(RefusedError::Status { .. })),
        "{why}"
    );
    tls(&us.down().await);
}

#[tokio::test]
async fn a_certificate_for_several_regions_says_nothing_of_who_calls() {
    let authority = Authority::new();
    let files = authority.files("eu");
    let eu = Service::start(own("eu", files.paths(), &["us", "asia"])).await;
    let both = authority.issue_for(&["us.isotherm", "asia.isotherm"]);
    let files = Files::new(&both, &authority.pem);
    let us = own("us", files.paths(), &["eu"]);
    let mut us = Calling::start(&us, "eu", eu.address, pace());
    tls(&us.down().await);
    assert!(eu.recorder.open.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_expired_server_is_refused() {
    let authority = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let expired = authority.issue_expired("eu.isotherm");
    let server = tokio::spawn(async move { raw::tls_server(listener, &expired).await });
    let files = authority.files("us");
    let us = own("us", files.paths(), &["eu"]);
    let mut us = Calling::start(&us, "eu", address, pace());
    let why = us.down().await;
    assert!(tls(&why).contains("expired"), "{why}");
    assert!(server.await.unwrap().is_err());
}

/// A client that is refused may learn it only when it reads: in TLS 1.3 its own handshake is done before.
async fn is_refused(address: std::net::SocketAddr, ca: &str, issued: Option<&Issued>) -> bool {
    match raw::tls_client(address, ca, issued).await {
        Err(_) => true,
        Ok(mut stream) => stream.read(&mut [0; 64]).await.is_err(),
    }
}

#[tokio::test]
async fn an_expired_caller_and_one_without_a_certificate_are_refused() {
    let authority = Authority::new();
    let (_files, eu) = eu(&authority).await;
    let expired = authority.issue_expired("us.isotherm");
    assert!(is_refused(eu.address, &authority.pem, Some(&expired)).await);
    assert!(is_refused(eu.address, &authority.pem, None).await);
    eventually(|| eu.recorder.turned_away.lock().unwrap().len() == 2).await;
}

#[tokio::test]
async fn a_plain_client_is_refused() {
    let authority = Authority::new();
    let (_files, eu) = eu(&authority).await;
    let mut socket = TcpStream::connect(eu.address).await.unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    socket.write_all(preface).await.unwrap();
    let mut answer = Vec::new();
    // An alert at most, and then the end.
    let _ = socket.read_to_end(&mut answer).await;
    assert!(answer.len() < 16, "{answer:?}");
    eventually(|| !eu.recorder.turned_away.lock().unwrap().is_empty()).await;
    // A service that was set up without TLS by mistake is told from one that is gone.
    let plain = own_with(
        "us",
        isotherm_ext_proc::peering::TransportSecurity::Plaintext,
        &["eu"],
    );
    let mut plain = Calling::start(&plain, "eu", eu.address, pace());
    let why = plain.down().await;
    assert!(matches!(why, LinkError::Refused(_)), "{why:?}");
    assert!(eu.recorder.open.lock().unwrap().is_empty());
}

#[test]
fn a_service_does_not_start_with_what_others_would_refuse() {
    let authority = Authority::new();
    let load = |issued: &Issued, ca: &str| {
        let files = Files::new(issued, ca);
        Credentials::load("eu", files.paths()).map(|_| ())
    };
    let right = authority.issue("eu.isotherm");
    let files = Files::new(&right, &authority.pem);
    let expires = Credentials::load("eu", files.paths()).unwrap().expires();
    assert_eq!(expires, Some(authority::expires()));
    assert_eq!(load(&right, &authority.pem), Ok(()));

    let unfit = |result| matches!(result, Err(CredentialsError::Certificate { .. }));
    assert!(unfit(load(&authority.issue("us.isotherm"), &authority.pem)));
    assert!(unfit(load(
        &authority.issue_expired("eu.isotherm"),
        &authority.pem
    )));
    assert!(unfit(load(&right, &Authority::new().pem)));

    assert!(unfit(load(&authority.issue("*.isotherm"), &authority.pem)));

    let wrong = |result| matches!(result, Err(CredentialsError::Content { .. }));
    let other_key = Issued {
        certificate: right.certificate.clone(),
        key: authority.issue("eu.isotherm").key,
    };
    assert!(wrong(load(&other_key, &authority.pem)));
    let garbage = Issued {
        certificate: "no certificate".into(),
        key: right.key.clone(),
    };
    assert!(wrong(load(&garbage, &authority.pem)));
    assert!(wrong(load(&right, "")));

    let files = authority.files("eu");
    std::fs::remove_file(files.paths().key).unwrap();
    let missing = Credentials::load("eu", files.paths()).map(|_| ());
    assert!(matches!(missing, Err(CredentialsError::Read { .. })));
}
