//! Fetches the metrics page of a replica.

use std::net::SocketAddr;
use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONNECTION, HOST, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use tokio::time;

use super::client::ReplicaClient;
use super::load::PageError;
use crate::http_client::{HttpError, read};

/// The largest metrics page, in bytes. vLLM's has about 50 kB for each data-parallel rank.
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The service waits for an answer this many times as long as a probe may take: a busy engine is slow, and one that hangs is silent.
const LATE_FACTOR: u32 = 3;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    /// The replica does not answer.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The replica answered after the time that a probe may take.
    #[error("GET {path} was answered after {} ms, later than `probe.timeout_ms`", .after.as_millis())]
    Late { path: String, after: Duration },
    /// The replica answered, and its page did not arrive whole.
    #[error("GET {path} was answered with a page that cannot be read: {cause}")]
    Body { path: String, cause: HttpError },
    /// The replica answered with another status than 200.
    #[error("GET {path} was answered with status {status}{}", advice(*status))]
    Status { path: String, status: u16 },
    /// The page does not contain the replica's load.
    #[error(transparent)]
    Page(#[from] PageError),
}

/// Advice for a status of a metrics page.
const fn advice(status: u16) -> &'static str {
    match status {
        // llama.cpp has metrics only with an option.
        501 => ": start the engine with metrics (llama.cpp: `--metrics`)",
        _ => "",
    }
}

impl ProbeError {
    /// The short name of every error.
    pub(crate) const REASONS: [&str; 5] = ["timeout", "connection", "status", "too_large", "page"];

    /// Returns a short name for metrics.
    pub(crate) const fn as_str(&self) -> &'static str {
        let [timeout, connection, status, too_large, page] = Self::REASONS;
        match self {
            Self::Late { .. } => timeout,
            Self::Http(cause) | Self::Body { cause, .. } => match cause {
                HttpError::Timeout(_) => timeout,
                HttpError::Connection(_) => connection,
                HttpError::TooLarge(_) => too_large,
            },
            Self::Status { .. } => status,
            Self::Page(_) => page,
        }
    }

    /// Whether the replica answered, and its answer does not tell its load. A replica that is down answers nothing. One that starts up, and
    /// a proxy whose engine is down, answer with one of three statuses.
    pub(super) const fn is_without_metrics(&self) -> bool {
        match self {
            Self::Status { status, .. } => !matches!(*status, 502..=504),
            // A request to an engine that sleeps waits until it is awake.
            Self::Http(_) | Self::Page(PageError::Asleep) => false,
            Self::Page(_) | Self::Body { .. } | Self::Late { .. } => true,
        }
    }

    /// Whether the answer cost much, and the next one is likely to cost as much.
    pub(super) const fn is_costly(&self) -> bool {
        matches!(self, Self::Body { .. })
    }

    /// Rank of the error among those of a replica's several pages: the largest one tells most.
    pub(super) const fn weight(&self) -> u8 {
        match self {
            Self::Status { status: 404, .. } => 1,
            answered if answered.is_without_metrics() => 2,
            _ => 0,
        }
    }
}

/// Fetches the metrics page at `path` of the replica at `addr`. Calls `on_late` when the answer does not begin within `timeout`, and waits
/// some more.
pub(super) async fn fetch(
    client: &ReplicaClient,
    addr: SocketAddr,
    path: &str,
    timeout: Duration,
    on_late: &(dyn Fn() + Send + Sync),
) -> Result<Bytes, ProbeError> {
    let start = Instant::now();
    let mut sent = pin!(send(client, addr, path, "text/plain"));
    let Ok(response) = time::timeout(timeout, &mut sent).await else {
        on_late();
        let longest = timeout.saturating_mul(LATE_FACTOR);
        let late = time::timeout(longest.saturating_sub(start.elapsed()), sent).await;
        let answered = late.unwrap_or(Err(HttpError::Timeout(longest)));
        return Err(
            answered.map_or_else(ProbeError::Http, |_| ProbeError::Late {
                path: path.to_owned(),
                after: start.elapsed(),
            }),
        );
    };
    let left = timeout.saturating_sub(start.elapsed());
    page(response?, path, left, PAGE_BYTES_MAX).await
}

/// Fetches a page of the type `accept`, of at most `bytes_max` bytes.
pub(super) async fn fetch_as(
    client: &ReplicaClient,
    addr: SocketAddr,
    path: &str,
    accept: &'static str,
    timeout: Duration,
    bytes_max: usize,
) -> Result<Bytes, ProbeError> {
    let response = time::timeout(timeout, send(client, addr, path, accept)).await;
    let response = response.unwrap_or(Err(HttpError::Timeout(timeout)))?;
    page(response, path, timeout, bytes_max).await
}

async fn send(
    ReplicaClient {
        http,
        authorization,
        keeps_connection,
    }: &ReplicaClient,
    addr: SocketAddr,
    path: &str,
    accept: &'static str,
) -> Result<Response<Incoming>, HttpError> {
    let scheme = http.scheme();
    let mut request = Request::get(format!("{scheme}://{addr}{path}"))
        .header(HOST, addr.to_string())
        .header(USER_AGENT, "isotherm")
        .header(ACCEPT, accept);
    if !keeps_connection {
        request = request.header(CONNECTION, "close");
    }
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    let request = request
        .body(Bytes::new())
        .map_err(|error| HttpError::Connection(error.to_string().into()))?;
    http.send(request).await
}

/// Reads the page of a response, for at most `timeout`.
async fn page(
    response: Response<Incoming>,
    path: &str,
    timeout: Duration,
    bytes_max: usize,
) -> Result<Bytes, ProbeError> {
    if response.status() != StatusCode::OK {
        return Err(ProbeError::Status {
            path: path.to_owned(),
            status: response.status().as_u16(),
        });
    }
    let read = time::timeout(timeout, read(response.into_body(), bytes_max)).await;
    let read = read.unwrap_or(Err(HttpError::Timeout(timeout)));
    read.map_err(|cause| ProbeError::Body {
        path: path.to_owned(),
        cause,
    })
}
