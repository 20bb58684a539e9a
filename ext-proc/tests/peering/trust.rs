//! Verification of callers and peers.

use std::sync::Arc;

use isotherm_ext_proc::peering::{Credentials, LinkError, Message, PATH};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::authority::{self, Authority, Files, IssuedCertificate};
use crate::raw;
use crate::service::{Client, Service, file_identity, plain, timeouts, tls_identity, wait_until};

fn tls(error: &LinkError) -> &str {
    match error {
        LinkError::Refused(reason) if reason.starts_with("TLS: ") => reason,
        other => panic!("not refused by TLS: {other:?}"),
    }
}

/// Whether the service refuses the caller for the region in its certificate.
fn is_forbidden(error: &LinkError) -> bool {
    matches!(error, LinkError::Refused(reason) if reason.contains("403"))
}

#[tokio::test]
async fn peers_exchange_messages_under_verified_names() {
    let authority = Authority::new();
    let eu = Service::start_eu(&authority).await;
    let us = tls_identity(&authority, "us", &["eu"]);
    let mut us = Client::start(&us, "eu", eu.address, timeouts());
    for _ in 0..20 {
        assert!(us.wait_until_up().await.has_gateway);
    }
    let messages = eu.recorder.messages.lock().unwrap().clone();
    assert!(messages.len() >= 20);
    assert!(messages.iter().all(|(region, _)| &**region == "us"));
}

#[tokio::test]
async fn a_service_with_the_same_name_is_a_sibling() {
    let authority = Authority::new();
    let eu = Service::start_eu(&authority).await;
    let sibling = tls_identity(&authority, "eu", &[]);
    let mut sibling = Client::start(&sibling, "eu", eu.address, timeouts());
    sibling.wait_until_up().await;
    assert_eq!(&*eu.recorder.messages.lock().unwrap()[0].0, "eu");
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused() {
    // An authority of another name, and another authority of the same name.
    for (name, expected) in [
        ("another", "UnknownIssuer"),
        ("an authority", "BadSignature"),
    ] {
        let eu = Service::start_eu(&Authority::named(name)).await;
        let us = tls_identity(&Authority::new(), "us", &["eu"]);
        let mut us = Client::start(&us, "eu", eu.address, timeouts());
        let error = us.wait_until_down().await;
        assert!(tls(&error).contains(expected), "{error}");
        assert_eq!(eu.recorder.count(), 0);
    }
}

#[tokio::test]
async fn a_caller_of_another_authority_learns_that_it_is_refused() {
    let (ours, other) = (Authority::new(), Authority::named("another"));
    let eu = Service::start_eu(&ours).await;
    // The caller trusts both authorities, so the service refuses the link.
    let both = format!("{}{}", ours.pem, other.pem);
    let files = Files::new(&other.issue("us.isotherm"), &both);
    let us = file_identity("us", &files, &["eu"]);
    let mut us = Client::start(&us, "eu", eu.address, timeouts());
    for _ in 0..5 {
        let error = us.wait_until_down().await;
        assert!(tls(&error).contains("UnknownCA"), "{error}");
    }
    assert_eq!(eu.recorder.count(), 0);
    assert!(eu.recorder.rejections.lock().unwrap()[0].contains("UnknownIssuer"));
}

#[tokio::test]
async fn a_server_of_another_name_is_refused() {
    let authority = Authority::new();
    let asia = Service::start(tls_identity(&authority, "asia", &["us"])).await;
    let us = tls_identity(&authority, "us", &["eu"]);
    let mut us = Client::start(&us, "eu", asia.address, timeouts());
    let error = us.wait_until_down().await;
    assert!(tls(&error).contains("not valid for name"), "{error}");
}

#[tokio::test]
async fn a_caller_that_is_no_peer_learns_that_it_is_refused() {
    let authority = Authority::new();
    let eu = Service::start_eu(&authority).await;
    let mars = tls_identity(&authority, "mars", &["eu"]);
    let mut mars = Client::start(&mars, "eu", eu.address, timeouts());
    for _ in 0..5 {
        assert!(is_forbidden(&mars.wait_until_down().await));
    }
    assert_eq!(eu.recorder.count(), 0);
}

#[tokio::test]
async fn a_peer_is_accepted_once_configured_and_cut_off_once_removed() {
    let authority = Authority::new();
    let eu_own = tls_identity(&authority, "eu", &[]);
    let eu = Service::start(Arc::clone(&eu_own)).await;
    let us = tls_identity(&authority, "us", &["eu"]);
    let mut us = Client::start(&us, "eu", eu.address, timeouts());
    assert!(is_forbidden(&us.wait_until_down().await));
    eu_own.set_peers(["us"]);
    us.wait_until_up_again().await;
    eu_own.set_peers(["asia"]);
    assert!(is_forbidden(&us.wait_until_down_again().await));
    assert!(is_forbidden(&us.wait_until_down().await));
}

#[tokio::test]
async fn a_certificate_for_several_regions_identifies_no_caller() {
    let authority = Authority::new();
    let eu = Service::start(tls_identity(&authority, "eu", &["us", "asia"])).await;
    let both = authority.issue_for(&["us.isotherm", "asia.isotherm"]);
    let files = Files::new(&both, &authority.pem);
    let us = file_identity("us", &files, &["eu"]);
    let mut us = Client::start(&us, "eu", eu.address, timeouts());
    assert!(is_forbidden(&us.wait_until_down().await));
    assert_eq!(eu.recorder.count(), 0);
}

#[tokio::test]
async fn an_expired_server_is_refused() {
    let authority = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let expired = authority.issue_expired("eu.isotherm");
    let server = tokio::spawn(async move { raw::tls_server(listener, &expired).await });
    let us = tls_identity(&authority, "us", &["eu"]);
    let mut us = Client::start(&us, "eu", address, timeouts());
    let error = us.wait_until_down().await;
    assert!(tls(&error).contains("expired"), "{error}");
    assert!(server.await.unwrap().is_err());
}

/// Whether the service refuses a client. In TLS 1.3 the client may learn it only when it reads, after its own handshake.
async fn is_refused(
    address: std::net::SocketAddr,
    ca: &str,
    issued: Option<&IssuedCertificate>,
) -> bool {
    match raw::tls_client(address, ca, issued).await {
        Err(_) => true,
        Ok(mut stream) => stream.read(&mut [0; 64]).await.is_err(),
    }
}

#[tokio::test]
async fn a_caller_with_an_expired_or_missing_certificate_is_refused() {
    let authority = Authority::new();
    let eu = Service::start_eu(&authority).await;
    let expired = authority.issue_expired("us.isotherm");
    assert!(is_refused(eu.address, &authority.pem, Some(&expired)).await);
    assert!(is_refused(eu.address, &authority.pem, None).await);
    wait_until(|| eu.recorder.rejections.lock().unwrap().len() == 2).await;
}

#[tokio::test]
async fn a_caller_without_tls_is_refused() {
    let authority = Authority::new();
    let eu = Service::start_eu(&authority).await;
    let mut socket = TcpStream::connect(eu.address).await.unwrap();
    let request = raw::request(PATH, &Message::Ping);
    socket.write_all(&request).await.unwrap();
    let mut answer = Vec::new();
    // The service sends an alert at most, and closes.
    let _ = socket.read_to_end(&mut answer).await;
    assert!(answer.len() < 16, "{answer:?}");
    wait_until(|| !eu.recorder.rejections.lock().unwrap().is_empty()).await;
    // The client distinguishes a service without TLS from one that is unreachable.
    let mut us = Client::start(&plain("us", &["eu"]), "eu", eu.address, timeouts());
    let error = us.wait_until_down().await;
    assert!(matches!(error, LinkError::Refused(_)), "{error:?}");
    assert_eq!(eu.recorder.count(), 0);
}

#[test]
fn credentials_that_other_regions_would_refuse_do_not_load() {
    let authority = Authority::new();
    let load = |issued: &IssuedCertificate, ca: &str| {
        let files = Files::new(issued, ca);
        Credentials::load("eu", files.paths()).map(drop)
    };
    let right = authority.issue("eu.isotherm");
    let files = Files::new(&right, &authority.pem);
    let loaded = Credentials::load("eu", files.paths()).unwrap();
    assert_eq!(loaded.state().expires, Some(authority::expires()));

    let has_error = |result: anyhow::Result<()>, part: &str| {
        result.is_err_and(|error| format!("{error:#}").contains(part))
    };
    let unfit = |result| has_error(result, "not a valid certificate for eu.isotherm");
    assert!(unfit(load(&authority.issue("us.isotherm"), &authority.pem)));
    assert!(unfit(load(
        &authority.issue_expired("eu.isotherm"),
        &authority.pem
    )));
    assert!(unfit(load(&right, &Authority::new().pem)));

    assert!(unfit(load(&authority.issue("*.isotherm"), &authority.pem)));

    let wrong = |result: anyhow::Result<()>| {
        let error = format!("{:#}", result.unwrap_err());
        !error.contains("not a valid certificate") && !error.contains("cannot read")
    };
    let other_key = IssuedCertificate {
        certificate: right.certificate.clone(),
        key: authority.issue("eu.isotherm").key,
    };
    assert!(wrong(load(&other_key, &authority.pem)));
    let garbage = IssuedCertificate {
        certificate: "no certificate".into(),
        key: right.key.clone(),
    };
    assert!(wrong(load(&garbage, &authority.pem)));
    assert!(wrong(load(&right, "")));

    let files = authority.files("eu");
    std::fs::remove_file(files.paths().key).unwrap();
    let missing = Credentials::load("eu", files.paths()).map(drop);
    assert!(has_error(missing, "cannot read"));
}
