//! The HTTP server, bounded in connections, and in the time for the headers of a request. A connection has one request.
//!
//! On loopback, where no key may be needed, the server answers only requests to an IP address or to `localhost`: a web page
//! can point a name of its own at this machine (DNS rebinding), but a browser then sends that name.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

use super::auth::too_many;
use super::connections::{ApiConnection, ApiConnections};
use super::{ApiError, TlsHandshake};

/// Bytes of a connection's buffers, and of a request's headers: a response is read from the database in pieces beyond them.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// Longest time for the headers of a request.
const HEADERS_TIME_MAX: Duration = Duration::from_secs(60);
/// Longest time in which a client takes no byte of a response.
const WRITE_TIME_MAX: Duration = Duration::from_secs(30);
/// Longest time of a connection: an upload or a download of the largest file over a slow network.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(7_200);
/// Time for the requests in flight when the server stops.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause after a failed accept, for want of file descriptors for example.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Serves `router` until `stop` is cancelled.
pub(super) async fn serve(
    (listener, tls): (TcpListener, Option<TlsHandshake>),
    mut router: Router,
    is_loopback: bool,
    stop: CancellationToken,
) {
    if is_loopback {
        router = router.layer(from_fn(check_host));
    }
    let connections = ApiConnections::default();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    let Some(connection) = connections.add() else {
                        tracing::warn!(%from, "the batch API has too many connections");
                        continue;
                    };
                    let (router, stop) = (router.clone(), stop.clone());
                    match tls.clone() {
                        Some(tls) => tasks.spawn(serve_tls(tls, stream, connection, router, stop)),
                        None => tasks.spawn(serve_connection(stream, connection, router, stop)),
                    };
                }
                Err(error) => {
                    tracing::warn!(%error, "the batch API cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = tasks.join_next() => {}
        }
    }
    drop(listener);
    let drained = timeout(DRAIN_TIME_MAX, async {
        while tasks.join_next().await.is_some() {}
    });
    let _ = drained.await;
}

/// Serves a connection behind its handshake.
async fn serve_tls(
    tls: TlsHandshake,
    stream: TcpStream,
    connection: ApiConnection,
    router: Router,
    stop: CancellationToken,
) {
    let stream = tokio::select! {
        stream = tls(stream) => stream,
        () = connection.evicted() => return,
        () = stop.cancelled() => return,
    };
    match stream {
        Ok(stream) => serve_connection(stream, connection, router, stop).await,
        Err(error) => tracing::debug!(%error, "a connection of the batch API has no TLS"),
    }
}

async fn serve_connection<S: AsyncRead + AsyncWrite>(
    stream: S,
    connection: ApiConnection,
    router: Router,
    stop: CancellationToken,
) {
    let place = Arc::new(connection);
    let router = router
        .layer(from_fn(begin))
        .layer(Extension(Arc::clone(&place)));
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIME_MAX));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .max_buf_size(BUFFER_BYTES_MAX)
        .header_read_timeout(HEADERS_TIME_MAX)
        .serve_connection(
            TokioIo::new(Box::pin(stream)),
            TowerToHyperService::new(router),
        );
    let mut connection = std::pin::pin!(connection);
    let served = async {
        tokio::select! {
            served = connection.as_mut() => return served,
            () = place.evicted() => return Ok(()),
            () = stop.cancelled() => {}
        }
        connection.as_mut().graceful_shutdown();
        connection.await
    };
    if let Ok(Err(error)) = timeout(CONNECTION_TIME_MAX, served).await {
        tracing::debug!(%error, "a connection of the batch API broke");
    }
}

/// Begins the request of a connection, which from now on makes way for no other.
async fn begin(
    Extension(connection): Extension<Arc<ApiConnection>>,
    request: Request,
    next: Next,
) -> Response {
    match connection.begin() {
        true => next.run(request).await,
        false => too_many("too_many_requests", "connections").into_response(),
    }
}

/// Rejects requests to a foreign host name.
async fn check_host(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST);
    if host.is_none_or(|host| is_local(host.as_bytes())) {
        return next.run(request).await;
    }
    let message = "On loopback this server answers only requests to its IP address or `localhost`.";
    ApiError::new(StatusCode::FORBIDDEN, "foreign_host", message).into_response()
}

/// Whether a `Host` header names this machine in a way that no foreign web page can.
fn is_local(host: &[u8]) -> bool {
    let Ok(authority) = Authority::try_from(host) else {
        return false;
    };
    let host = authority.host();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_when_its_client_reads_nothing_of_a_response() {
        let content = vec![b'x'; 4 << 20];
        let router = Router::new().route("/", get(|| async { content }));
        let (server, mut client) = tokio::io::duplex(1_024);
        client
            .write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
            .await
            .unwrap();
        let begun_at = tokio::time::Instant::now();
        let connection = ApiConnections::default().add().unwrap();
        serve_connection(server, connection, router, CancellationToken::new()).await;
        assert!(begun_at.elapsed() < CONNECTION_TIME_MAX / 10);
        drop(client);
    }

    #[test]
    fn only_names_of_this_machine_are_local() {
        for (host, expected) in [
            ("127.0.0.1:9004", true),
            ("[::1]:9004", true),
            ("localhost", true),
            ("attacker.example", false),
            ("127.0.0.1.attacker.example", false),
            ("", false),
        ] {
            assert_eq!(is_local(host.as_bytes()), expected, "{host}");
        }
    }
}
