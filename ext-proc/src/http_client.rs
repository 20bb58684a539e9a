//! A small HTTP client: whole responses are bounded in time and in size, and connections are kept.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

/// Time that an idle connection is kept: longer than any interval between probes of a live replica.
const IDLE_MAX: Duration = Duration::from_secs(90);

/// An HTTP client; clones share their connections.
#[derive(Clone, Debug)]
pub(crate) struct HttpClient(Client<HttpConnector, Full<Bytes>>);

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// The response did not arrive in time.
    #[error("no response within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The server cannot be reached, or the connection broke.
    #[error("{0}")]
    Connection(String),
    /// The response is too large.
    #[error("the response has more than {0} bytes")]
    TooLarge(usize),
}

impl HttpClient {
    /// Creates a client. Must be called inside a tokio runtime.
    pub(crate) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(1)
            .build(connector);
        Self(client)
    }

    /// Sends a request, and returns the response with its whole body.
    pub(crate) async fn fetch(
        &self,
        request: Request<Bytes>,
        timeout: Duration,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, HttpError> {
        let fetch = async {
            let (head, body) = self.send(request).await?.into_parts();
            match Limited::new(body, bytes_max).collect().await {
                Ok(body) => Ok(Response::from_parts(head, body.to_bytes())),
                Err(error) if error.is::<LengthLimitError>() => Err(HttpError::TooLarge(bytes_max)),
                Err(error) => Err(connection_error(error.as_ref())),
            }
        };
        let fetched = tokio::time::timeout(timeout, fetch).await;
        fetched.unwrap_or(Err(HttpError::Timeout(timeout)))
    }

    /// Sends a request, and returns the response once its headers have arrived.
    pub(crate) async fn send(
        &self,
        request: Request<Bytes>,
    ) -> Result<Response<Incoming>, HttpError> {
        let response = self.0.request(request.map(Full::new)).await;
        response.map_err(|error| connection_error(&error))
    }
}

/// Keeps the cause, which says more than the errors around it ("client error").
fn connection_error(error: &(dyn Error + 'static)) -> HttpError {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    HttpError::Connection(cause.to_string())
}
