//! The HTTP server, bounded in connections and in the time for a request's headers.
//!
//! On loopback, where no key may be needed, the server answers only requests to an IP address or to `localhost`: a web page
//! can point a name of its own at this machine (DNS rebinding), but a browser then sends that name.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

use super::ApiError;

/// Most connections at once.
const CONNECTIONS_MAX: usize = 256;
/// Longest time for the headers of a request, and for the next request of a connection.
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
    listener: TcpListener,
    mut router: Router,
    is_loopback: bool,
    stop: CancellationToken,
) {
    if is_loopback {
        router = router.layer(from_fn(check_host));
    }
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        // While all places are taken, new connections wait in the listener's queue.
        let place = tokio::select! {
            () = stop.cancelled() => break,
            place = Arc::clone(&places).acquire_owned() => place,
        };
        let Ok(place) = place else { break };
        tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let connection = serve_connection(stream, router.clone(), stop.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "the batch API cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    let drained = timeout(DRAIN_TIME_MAX, async {
        while connections.join_next().await.is_some() {}
    });
    let _ = drained.await;
}

async fn serve_connection<S: AsyncRead + AsyncWrite>(
    stream: S,
    router: Router,
    stop: CancellationToken,
) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIME_MAX));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIME_MAX)
        .serve_connection(
            TokioIo::new(Box::pin(stream)),
            TowerToHyperService::new(router),
        );
    let mut connection = std::pin::pin!(connection);
    let served = async {
        tokio::select! {
            served = connection.as_mut() => return served,
            () = stop.cancelled() => {}
        }
        connection.as_mut().graceful_shutdown();
        connection.await
    };
    if let Ok(Err(error)) = timeout(CONNECTION_TIME_MAX, served).await {
        tracing::debug!(%error, "a connection of the batch API broke");
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
        serve_connection(server, router, CancellationToken::new()).await;
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
