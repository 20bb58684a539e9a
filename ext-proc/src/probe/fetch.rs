//! Fetches the metrics page of a replica.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, HOST, USER_AGENT};
use hyper::{Request, StatusCode};

use super::client::ReplicaClient;
use super::load::PageError;
use crate::http_client::HttpError;

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
        .map_err(|error| HttpError::Connection(error.to_string().into()))?;
    let response = http.fetch(request, timeout, bytes_max).await?;
    match response.status() {
        StatusCode::OK => Ok(response.into_body()),
        status => Err(ProbeError::Status {
            path: path.to_owned(),
            status: status.as_u16(),
        }),
    }
}
