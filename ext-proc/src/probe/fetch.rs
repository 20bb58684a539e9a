//! Fetches the metrics page of a replica, and checks whether a replica runs at all.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use super::client::ReplicaClient;
use super::load::PageError;
use crate::http_client::{HttpClient, HttpError};

/// The largest metrics page, in bytes. vLLM's has about 50 kB for each data-parallel rank.
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    /// The page cannot be fetched.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The replica answered with an error.
    #[error("GET {path} was answered with status {status}")]
    Status { path: String, status: u16 },
    /// The page does not contain the replica's load.
    #[error(transparent)]
    Page(#[from] PageError),
}

impl ProbeError {
    /// The short name of every error.
    pub(crate) const REASONS: [&str; 5] = ["timeout", "connection", "status", "too_large", "page"];

    /// Returns a short name for metrics.
    pub(crate) const fn as_str(&self) -> &'static str {
        let [timeout, connection, status, too_large, page] = Self::REASONS;
        match self {
            Self::Http(HttpError::Timeout(_)) => timeout,
            Self::Http(HttpError::Connection(_)) => connection,
            Self::Http(HttpError::TooLarge(_)) => too_large,
            Self::Status { .. } => status,
            Self::Page(_) => page,
        }
    }
}

impl ProbeError {
    /// Whether the replica answered, and has no page that the service can read as the metrics of an engine. A replica that is
    /// down or starts up answers nothing, or with another status.
    pub(super) const fn is_without_metrics(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(*status, 401 | 403..=406 | 410 | 501),
            Self::Page(PageError::Unknown) => true,
            Self::Page(_) | Self::Http(_) => false,
        }
    }
}

/// Fetches the metrics page at `path` of the replica at `addr`.
pub(super) async fn fetch(
    client: &ReplicaClient,
    addr: SocketAddr,
    path: &str,
    timeout: Duration,
) -> Result<Bytes, ProbeError> {
    fetch_as(client, addr, path, "text/plain", timeout, PAGE_BYTES_MAX).await
}

/// Fetches a page of the type `accept`, of at most `bytes_max` bytes.
pub(super) async fn fetch_as(
    ReplicaClient {
        http,
        authorization,
    }: &ReplicaClient,
    addr: SocketAddr,
    path: &str,
    accept: &'static str,
    timeout: Duration,
    bytes_max: usize,
) -> Result<Bytes, ProbeError> {
    let scheme = http.scheme();
    let mut request = Request::get(format!("{scheme}://{addr}{path}"))
        .header(HOST, addr.to_string())
        .header(USER_AGENT, "isotherm")
        .header(ACCEPT, accept);
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    let request = request
        .body(Bytes::new())
        .map_err(|error| HttpError::Connection(error.to_string()))?;
    let response = http.fetch(request, timeout, bytes_max).await?;
    match response.status() {
        StatusCode::OK => Ok(response.into_body()),
        status => Err(ProbeError::Status {
            path: path.to_owned(),
            status: status.as_u16(),
        }),
    }
}

/// Whether the replica at `addr` answers. Any HTTP response shows that it runs, so status 404 does as well; so does any answer
/// to the first message of TLS. No token is sent.
pub(crate) async fn is_alive(http: &HttpClient, addr: SocketAddr, timeout: Duration) -> bool {
    let client = ReplicaClient::plain(http.clone());
    match fetch(&client, addr, "/metrics", timeout).await {
        Err(ProbeError::Http(HttpError::Timeout(_))) => false,
        Err(ProbeError::Http(HttpError::Connection(_))) => {
            let handshake = tokio::time::timeout(timeout, has_tls(addr));
            handshake.await.unwrap_or(false)
        }
        _ => true,
    }
}

/// Whether the server at `addr` speaks TLS. The client trusts no certificate: it looks for an answer, whatever that says.
async fn has_tls(addr: SocketAddr) -> bool {
    let versions = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions();
    let Ok(versions) = versions else { return false };
    let config = versions
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let Ok(stream) = TcpStream::connect(addr).await else {
        return false;
    };
    let connector = TlsConnector::from(Arc::new(config));
    match connector.connect(addr.ip().into(), stream).await {
        Ok(_) => true,
        // An error of TLS is made of what the server has sent; an error of the connection is not.
        Err(error) => error
            .get_ref()
            .is_some_and(|error| error.is::<rustls::Error>()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

    use super::*;

    #[tokio::test]
    async fn a_server_with_tls_is_alive_and_a_server_that_hangs_up_is_not() {
        let made = rcgen::generate_simple_self_signed(vec!["vllm.example".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        for has_tls in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let acceptor = acceptor.clone();
            let server = tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    match has_tls {
                        // The client trusts no certificate.
                        true => drop(acceptor.accept(stream).await),
                        false => drop(stream.shutdown().await),
                    }
                }
            });
            let http = HttpClient::new();
            let answer = is_alive(&http, addr, Duration::from_secs(10)).await;
            assert_eq!(answer, has_tls);
            server.abort();
        }
    }
}
