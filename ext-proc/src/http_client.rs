//! A small HTTP client: whole responses are bounded in time and in size, and connections are kept.

use std::error::Error;
use std::io;
use std::iter::successors;
use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::{Request, Response};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Builder, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::error::Elapsed;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// Time that an idle connection is kept: longer than any interval between probes of a live replica.
const IDLE_MAX: Duration = Duration::from_secs(90);
/// The most idle connections to one host. A service that pings another region may wait for several responses at once.
const IDLE_CONNECTIONS_MAX: usize = 3;
/// Bound on the TCP connection to a host, which its addresses share.
const CONNECT_MAX: Duration = Duration::from_millis(1_500);

/// An HTTP client; clones share their connections.
#[derive(Clone, Debug)]
pub(crate) enum HttpClient {
    /// Every connection is in clear.
    Plain(Client<HttpConnector, Full<Bytes>>),
    /// Every connection has TLS.
    Tls(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
}

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// The response did not arrive in time.
    #[error("no response within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The server cannot be reached, or the connection broke. The last cause says more than the errors around it ("client
    /// error").
    #[error("{}", causes(&**.0).filter(|cause| !cause.is::<Elapsed>()).last().unwrap_or(&**.0))]
    Connection(Box<dyn Error + Send + Sync>),
    /// The response is too large.
    #[error("the response has more than {0} bytes")]
    TooLarge(usize),
}

impl HttpClient {
    /// Creates a client for plain HTTP. Must be called inside a tokio runtime.
    pub(crate) fn new() -> Self {
        Self::Plain(builder().build(connector()))
    }

    /// Creates a client for HTTP over TLS. It expects `server_name` in certificates, or else the host of the request. Must be
    /// called inside a tokio runtime.
    pub(crate) fn with_tls(config: ClientConfig, server_name: Option<ServerName<'static>>) -> Self {
        let mut connector = connector();
        connector.enforce_http(false);
        let tls = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_only();
        let tls = match server_name {
            Some(name) => tls.with_server_name_resolver(FixedServerNameResolver::new(name)),
            None => tls,
        };
        Self::Tls(builder().build(tls.enable_http1().wrap_connector(connector)))
    }

    /// Returns the scheme of the addresses that the client reaches.
    pub(crate) const fn scheme(&self) -> &'static str {
        match self {
            Self::Plain(_) => "http",
            Self::Tls(_) => "https",
        }
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
            Ok(Response::from_parts(head, read(body, bytes_max).await?))
        };
        let fetched = tokio::time::timeout(timeout, fetch).await;
        fetched.unwrap_or(Err(HttpError::Timeout(timeout)))
    }

    /// Sends a request, and returns the response once its headers have arrived.
    pub(crate) async fn send(
        &self,
        request: Request<Bytes>,
    ) -> Result<Response<Incoming>, HttpError> {
        let request = request.map(Full::new);
        let response = match self {
            Self::Plain(client) => client.request(request).await,
            Self::Tls(client) => client.request(request).await,
        };
        response.map_err(|error| HttpError::Connection(error.into()))
    }
}

/// Reads a whole body of at most `bytes_max` bytes. The pieces are copied into one buffer, since a piece of one byte holds more memory
/// than it has bytes.
pub(crate) async fn read<B>(body: B, bytes_max: usize) -> Result<Bytes, HttpError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut body = pin!(Limited::new(body, bytes_max));
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => whole.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
            Err(error) if error.is::<LengthLimitError>() => {
                return Err(HttpError::TooLarge(bytes_max));
            }
            Err(error) => return Err(HttpError::Connection(error)),
        }
    }
    Ok(whole.freeze())
}

fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_MAX));
    connector
}

fn builder() -> Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_MAX)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX);
    builder
}

/// An error and its causes, the innermost one last.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |&error| {
        match error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            // An I/O error leaves the error that it wraps out of its sources.
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::stream::iter;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    /// A piece of a body that is alive as long as the reader holds it.
    struct Piece {
        _alive: Arc<()>,
    }

    impl AsRef<[u8]> for Piece {
        fn as_ref(&self) -> &[u8] {
            b"x"
        }
    }

    #[tokio::test]
    async fn the_pieces_of_a_body_are_not_kept() {
        let alive = Arc::new(());
        let counted = Arc::clone(&alive);
        let pieces = (0..1_000).map(move |_| {
            assert!(Arc::strong_count(&counted) <= 3, "an earlier piece is kept");
            let piece = Bytes::from_owner(Piece {
                _alive: Arc::clone(&counted),
            });
            Ok::<_, io::Error>(Frame::data(piece))
        });
        let whole = read(StreamBody::new(iter(pieces)), 1_000).await.unwrap();
        assert_eq!(whole, vec![b'x'; 1_000]);
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[tokio::test]
    async fn a_body_that_is_too_large_is_an_error() {
        let body = || Full::new(Bytes::from_static(b"four"));
        assert_eq!(read(body(), 4).await.unwrap(), "four");
        let error = read(body(), 3).await.unwrap_err();
        assert!(matches!(error, HttpError::TooLarge(3)), "{error}");
    }
}
