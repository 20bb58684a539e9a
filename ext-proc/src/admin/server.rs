//! The HTTP server of the admin interface: bounded in connections, and in how long each may take.
//!
//! axum's own server bounds neither, so a client that opens connections and sends nothing could take the file
//! descriptors that Envoy's streams need. An answer that is a recording may take longer ([`Open`]), within its own bounds.
//!
//! On loopback it answers only to who asks for an address or for `localhost`. A web page can point a name of its own
//! at 127.0.0.1 (DNS rebinding) and then read what a browser on this machine is told; but the browser says that name.

use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::error::ApiError;

/// Connections served at the same time; further ones wait.
const CONNECTIONS_MAX: usize = 64;
/// Time within which a connection must send its request head.
const HEADERS_TIME_MAX: Duration = Duration::from_secs(5);
/// Time within which a request must be read and answered.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);
/// Lifetime of a connection.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(300);
/// Lifetime of a connection that carries a recording: the longest recording, and the time to read it.
const RECORDING_TIME_MAX: Duration = Duration::from_secs(3_800);
/// Interval at which a connection checks whether its recording has ended.
const RECORDING_LOOK: Duration = Duration::from_secs(1);
/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Keeps a connection open beyond its time, while the caller holds it.
#[derive(Clone, Debug, Default)]
pub(super) struct Open(Arc<AtomicUsize>);

/// See [`Open`].
#[derive(Debug)]
pub(super) struct ConnectionHold(Open);

impl Open {
    pub(super) fn hold(&self) -> ConnectionHold {
        self.0.fetch_add(1, Ordering::Relaxed);
        ConnectionHold(self.clone())
    }

    /// Until the connection has lasted long enough.
    async fn time_is_over(&self) {
        sleep(CONNECTION_TIME_MAX).await;
        let given_up = sleep(RECORDING_TIME_MAX.saturating_sub(CONNECTION_TIME_MAX));
        let released = async {
            while self.0.load(Ordering::Relaxed) > 0 {
                sleep(RECORDING_LOOK).await;
            }
        };
        tokio::select! {
            () = given_up => {}
            () = released => {}
        }
    }
}

impl Drop for ConnectionHold {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves `router` on `listener` until `stop` resolves and the requests in flight are answered.
pub(super) async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
    let mut router = router.layer(from_fn(in_time));
    if listener
        .local_addr()
        .is_ok_and(|addr| addr.ip().is_loopback())
    {
        router = router.layer(from_fn(asked_for_by_address));
    }
    let (stopping, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, from)) => {
                    connections.spawn(connection(stream, from, router.clone(), stopped.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "the admin interface takes no connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop((listener, stopping));
    while connections.join_next().await.is_some() {}
}

/// Serves one connection, until the service stops or it has lasted long enough.
async fn connection(
    stream: TcpStream,
    from: SocketAddr,
    router: Router,
    mut stopped: watch::Receiver<()>,
) {
    let open = Open::default();
    let router = router.layer(Extension(open.clone()));
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS_TIME_MAX)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
    );
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        // Nothing is ever sent: the sender goes when the service stops.
        _ = stopped.changed() => None,
        () = open.time_is_over() => None,
    };
    let ended = match ended {
        Some(ended) => Ok(ended),
        None => {
            connection.as_mut().graceful_shutdown();
            timeout(REQUEST_TIME_MAX, connection).await
        }
    };
    if let Ok(Err(error)) = ended {
        tracing::debug!(%from, %error, "an admin connection broke");
    }
}

async fn in_time(request: Request, next: Next) -> Result<Response, Infallible> {
    let answer = timeout(REQUEST_TIME_MAX, next.run(request)).await;
    Ok(answer.unwrap_or_else(|_| {
        let message = format!("no answer within {} s", REQUEST_TIME_MAX.as_secs());
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", message).into_response()
    }))
}

async fn asked_for_by_address(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST);
    if host.is_none_or(|host| is_of_this_machine(host.as_bytes())) {
        return next.run(request).await;
    }
    let message = "on loopback this interface answers to its address and to `localhost` only, since a name that \
         points here may be a web page's: ask for it by address";
    ApiError::new(StatusCode::FORBIDDEN, "foreign_host", message).into_response()
}

/// Whether this is the value of a `Host` header that no foreign web page can bring about.
fn is_of_this_machine(host: &[u8]) -> bool {
    let Ok(authority) = Authority::try_from(host) else {
        return false;
    };
    let host = authority.host();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_are_of_this_machine_and_names_are_not() {
        for host in [
            "127.0.0.1:9003",
            "127.0.0.1",
            "[::1]:9003",
            "LocalHost:9003",
        ] {
            assert!(is_of_this_machine(host.as_bytes()), "{host}");
        }
        for host in [
            "attacker.example:9003",
            "127.0.0.1.example",
            "localhost.example",
            "",
            "a b",
        ] {
            assert!(!is_of_this_machine(host.as_bytes()), "{host}");
        }
    }
}
