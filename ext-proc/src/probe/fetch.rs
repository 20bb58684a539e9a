//! Fetches the metrics page of a replica: bounded in time and size, over a connection that is kept.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::Request;
use hyper::header::{ACCEPT, HOST, USER_AGENT};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::load::PageError;

/// The largest page that is read, in bytes. vLLM's has about 50 kB for each data-parallel rank.
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long a connection is kept without use; longer than any interval between probes of a live replica.
const IDLE_MAX: Duration = Duration::from_secs(90);

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The replica did not answer in time.
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The replica cannot be reached, or the connection broke.
    #[error("{0}")]
    Connection(String),
    /// The replica answered with an error status.
    #[error("GET {path} was answered with status {status}")]
    Status {
        /// Path of the page.
        path: String,
        /// HTTP status.
        status: u16,
    },
    /// The page is too large.
    #[error("its metrics page has more than {PAGE_BYTES_MAX} bytes")]
    TooLarge,
    /// The page has no load.
    #[error(transparent)]
    Page(#[from] PageError),
}

impl ProbeError {
    /// All values of [`Self::as_str`].
    pub(crate) const REASONS: [&str; 5] = ["timeout", "connection", "status", "too_large", "page"];

    /// A short name for metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        let [timeout, connection, status, too_large, page] = Self::REASONS;
        match self {
            Self::Timeout(_) => timeout,
            Self::Connection(_) => connection,
            Self::Status { .. } => status,
            Self::TooLarge => too_large,
            Self::Page(_) => page,
        }
    }
}

/// The HTTP client of all probes.
#[derive(Clone, Debug)]
pub(super) struct Fetcher(Client<HttpConnector, Empty<Bytes>>);

impl Fetcher {
    pub(super) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self(
            Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE_MAX)
                .pool_max_idle_per_host(1)
                .build(connector),
        )
    }

    /// The page at `path` of the replica at `addr`.
    pub(super) async fn get(
        &self,
        addr: SocketAddr,
        path: &str,
        timeout: Duration,
    ) -> Result<Bytes, ProbeError> {
        tokio::time::timeout(timeout, self.get_unbounded(addr, path))
            .await
            .unwrap_or(Err(ProbeError::Timeout(timeout)))
    }

    async fn get_unbounded(&self, addr: SocketAddr, path: &str) -> Result<Bytes, ProbeError> {
        let request = Request::get(format!("http://{addr}{path}"))
            .header(HOST, addr.to_string())
            .header(USER_AGENT, "isotherm")
            .header(ACCEPT, "text/plain")
            .body(Empty::new())
            .map_err(|error| ProbeError::Connection(error.to_string()))?;
        let response = self
            .0
            .request(request)
            .await
            .map_err(|error| connection(&error))?;
        if response.status() != hyper::StatusCode::OK {
            return Err(ProbeError::Status {
                path: path.to_owned(),
                status: response.status().as_u16(),
            });
        }
        let body = Limited::new(response.into_body(), PAGE_BYTES_MAX);
        match body.collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(ProbeError::TooLarge),
            Err(error) => Err(connection(error.as_ref())),
        }
    }
}

/// The innermost cause: the client wraps it into less specific errors ("client error").
fn connection(error: &(dyn std::error::Error + 'static)) -> ProbeError {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    ProbeError::Connection(cause.to_string())
}
