//! The door for regions, an Envoy's listener `regions`: who gets in, what it says of its region's health, and that its
//! certificate is replaced while it serves.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use isotherm_e2e::regions::{meet, scripted};
use isotherm_e2e::{ScriptedReplica, WAIT_MAX, chat, permit};
use isotherm_fingerprint::names;
use isotherm_harness::{Regions, Stack, wait_for};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

const HEALTH: &str = "/isotherm/health";

/// A connection to a region's door.
struct Visit {
    /// The certificate that was shown.
    shown: Vec<u8>,
    requests: SendRequest<Full<Bytes>>,
}

/// An answer, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    status: u16,
    refused: Option<String>,
    body: String,
}

impl Visit {
    /// Goes to the door of `region` with the certificate in this folder.
    async fn to(region: &str, door: SocketAddr, certificates: &Path) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_file_iter(certificates.join("ca.pem"))? {
            roots.add(root?)?;
        }
        let chain = CertificateDer::pem_file_iter(certificates.join("region.pem"))?;
        let chain: Vec<_> = chain.collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_file(certificates.join("region.key"))?;
        let mut config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from(format!("{region}.isotherm"))?;
        let stream = TcpStream::connect(door).await?;
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await?;
        let shown = stream.get_ref().1.peer_certificates();
        let shown = shown
            .and_then(|chain| chain.first())
            .context("no certificate")?;
        let shown = shown.to_vec();
        let (requests, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { shown, requests })
    }

    async fn get(&mut self, path: &str) -> anyhow::Result<Said> {
        let request = Request::get(format!("https://isotherm{path}"));
        self.send(request.body(Full::default())?).await
    }

    /// Asks as a region whose name is said to be `origin`.
    async fn chat(&mut self, origin: Option<&str>, prompt: &str) -> anyhow::Result<Said> {
        let mut request = Request::post("https://isotherm/v1/chat/completions")
            .header("content-type", "application/json");
        if let Some(origin) = origin {
            request = request.header(names::ORIGIN, origin);
        }
        let body = chat(prompt).to_string();
        self.send(request.body(Full::from(body))?).await
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> anyhow::Result<Said> {
        self.requests.ready().await?;
        let answer = self.requests.send_request(request).await?;
        let refused = answer.headers().get(names::REFUSED);
        let refused = refused.map(|why| String::from_utf8_lossy(why.as_bytes()).into_owned());
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        Ok(Said {
            status,
            refused,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }
}

/// The way from one region to another's door.
fn door(regions: &Regions, from: &str, to: &str) -> anyhow::Result<SocketAddr> {
    Ok(regions.link(from, to)?.gateway().address())
}

/// What a region tells those who ask for its clients.
async fn health_for_clients(stack: &Stack) -> anyhow::Result<u16> {
    Ok(reqwest::get(stack.url(HEALTH)).await?.status().as_u16())
}

#[tokio::test]
async fn a_region_speaks_for_itself_only() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [us, eu] = [
        ScriptedReplica::start("us").await?,
        ScriptedReplica::start("eu").await?,
    ];
    let sites: [(&str, &[&ScriptedReplica]); 2] = [("us", &[&us]), ("eu", &[&eu])];
    let regions = scripted("door", &sites, 1).start().await?;
    meet(&regions, &["us", "eu"]).await?;
    let door = door(&regions, "us", "eu")?;

    let mut visit = Visit::to("eu", door, &regions.certificates("us")).await?;
    // Its host's own name would make it a request that came back.
    for origin in [None, Some("eu"), Some("asia")] {
        let said = visit.chat(origin, "Who am I?").await?;
        assert_eq!(said.status, 503, "{origin:?}: {said:?}");
    }
    assert!(eu.received().is_empty());
    let said = visit.chat(Some("us"), "Who am I?").await?;
    assert_eq!((said.status, said.refused), (200, None));
    assert_eq!(eu.received().len(), 1);

    // A good signature is not enough: nobody knows this name.
    let stranger = regions.directory().join("stranger");
    regions.authority().issue("mars", &stranger)?;
    let refused = async {
        let mut visit = Visit::to("eu", door, &stranger).await?;
        visit.chat(Some("mars"), "Who am I?").await
    };
    refused.await.unwrap_err();
    assert_eq!(eu.received().len(), 1);
    Ok(())
}

#[tokio::test]
async fn the_door_is_open_while_the_service_lives() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [us, eu] = [
        ScriptedReplica::start("us").await?,
        ScriptedReplica::start("eu").await?,
    ];
    let sites: [(&str, &[&ScriptedReplica]); 2] = [("us", &[&us]), ("eu", &[&eu])];
    let mut regions = scripted("health", &sites, 1).start().await?;
    meet(&regions, &["us", "eu"]).await?;
    let (door, files) = (door(&regions, "us", "eu")?, regions.certificates("us"));
    let mut visit = Visit::to("eu", door, &files).await?;
    assert_eq!(visit.get(HEALTH).await?.status, 200);
    assert_eq!(health_for_clients(regions.region("eu")?).await?, 200);

    // Guests go home; clients are served by ring hash.
    regions.region_mut("eu")?.service_mut().kill()?;
    let said = visit.chat(Some("us"), "Is anybody there?").await?;
    assert_eq!(said.status, 503);
    assert_eq!(said.refused.as_deref(), Some("no_service"));
    wait_for(WAIT_MAX, "the door to say so", || async {
        let mut visit = Visit::to("eu", door, &files).await?;
        Ok((visit.get(HEALTH).await?.status == 503).then_some(()))
    })
    .await?;
    assert_eq!(health_for_clients(regions.region("eu")?).await?, 200);
    assert!(eu.received().is_empty());
    let client = isotherm_e2e::Client::new(&regions.region("eu")?.url(""))?;
    assert_eq!(client.chat("s", &chat("And now?")).await?.status, 200);

    // An operator drains the Envoy.
    let fail = regions.region("eu")?.envoy().admin_url("/healthcheck/fail");
    reqwest::Client::new()
        .post(fail)
        .send()
        .await?
        .error_for_status()?;
    assert_eq!(health_for_clients(regions.region("eu")?).await?, 503);
    Ok(())
}

#[tokio::test]
async fn a_certificate_is_replaced_while_requests_pass() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [us, eu] = [
        ScriptedReplica::start("us").await?,
        ScriptedReplica::start("eu").await?,
    ];
    let sites: [(&str, &[&ScriptedReplica]); 2] = [("us", &[&us]), ("eu", &[&eu])];
    let regions = scripted("renewal", &sites, 1).start().await?;
    meet(&regions, &["us", "eu"]).await?;
    let door = door(&regions, "us", "eu")?;
    let files = regions.certificates("us");

    let mut old = Visit::to("eu", door, &files).await?;
    assert_eq!(old.chat(Some("us"), "Before").await?.status, 200);
    regions
        .authority()
        .issue("eu", &regions.certificates("eu"))?;
    wait_for(WAIT_MAX, "the new certificate", || async {
        let new = Visit::to("eu", door, &files).await?;
        Ok((new.shown != old.shown).then_some(()))
    })
    .await?;
    let mut new = Visit::to("eu", door, &files).await?;
    assert_eq!(new.chat(Some("us"), "After").await?.status, 200);
    assert_eq!(old.chat(Some("us"), "And the old one").await?.status, 200);
    Ok(())
}
