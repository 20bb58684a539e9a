//! The HTTP server of the admin interface, bounded in connections and in the time of each.
//!
//! axum's own server bounds neither, so idle clients could take the file descriptors that Envoy's streams need. A connection
//! carries one request. While all are taken, a new one replaces the oldest that has sent no request yet, and some are kept for
//! health ([`AdminConnections`]): a flood of connections cannot make an orchestrator restart the service. The response of a recording
//! may take longer ([`ConnectionLifetime`]), within bounds of its own.
//!
//! On loopback the server answers only requests to an IP address or to `localhost`. A web page can point a name of its own
//! at 127.0.0.1 (DNS rebinding) and then read what a browser on this machine receives; but the browser sends that name.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
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
use tokio::sync::{OwnedRwLockReadGuard, RwLock, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connections::{AdminConnection, AdminConnections};
use super::error::ApiError;

/// The pages that have connections of their own.
const HEALTH: [&str; 2] = ["/healthz", "/readyz"];
/// The longest time for the headers of a request.
const HEADERS_TIME_MAX: Duration = Duration::from_secs(5);
/// The longest time for a request, with its body and its response.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);
/// The longest wait for a drain, in milliseconds: a long answer, and some more.
pub(super) const DRAIN_WAIT_MS_MAX: u64 = 900_000;
/// The longest time of a connection, whatever its requests.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(300);
/// The longest time of a connection with a recording: the longest recording, and the time that the client needs to read
/// the rest of it.
const RECORDING_TIME_MAX: Duration = Duration::from_secs(3_800);
/// The pause after a failed accept, for want of file descriptors for example.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The lifetime of a connection. A recording extends it by a read lock.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionLifetime(Arc<RwLock<()>>);

impl ConnectionLifetime {
    /// Keeps the connection open beyond its usual time, until the guard is dropped.
    pub(super) async fn extend(self) -> OwnedRwLockReadGuard<()> {
        self.0.read_owned().await
    }

    /// Resolves when the connection must end.
    async fn ended(&self) {
        sleep(CONNECTION_TIME_MAX).await;
        let longest = RECORDING_TIME_MAX.saturating_sub(CONNECTION_TIME_MAX);
        // Either the recording has ended, or the longest time is over.
        let _ = timeout(longest, self.0.write()).await;
    }
}

/// Serves `router` on `listener` until `stop` resolves and the requests in flight have ended.
pub(super) async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
    let mut router = router.layer(from_fn(limit_time));
    if listener
        .local_addr()
        .is_ok_and(|addr| addr.ip().is_loopback())
    {
        router = router.layer(from_fn(check_host));
    }
    let (stopping, stopped) = watch::channel(());
    let places = AdminConnections::default();
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    let mut has_failed = false;
    loop {
        tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    has_failed = false;
                    let Some(place) = places.take() else {
                        tracing::warn!(%from, "the admin interface has too many connections");
                        continue;
                    };
                    let router = router.clone().layer(Extension(from));
                    connections.spawn(serve_connection(stream, place, router, stopped.clone()));
                }
                Err(error) => {
                    if !std::mem::replace(&mut has_failed, true) {
                        tracing::warn!(%error, "the admin interface cannot accept connections for now");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop((listener, stopping));
    while connections.join_next().await.is_some() {}
}

/// Serves one connection, until the service stops or its lifetime ends.
async fn serve_connection(
    stream: TcpStream,
    place: AdminConnection,
    router: Router,
    mut stopped: watch::Receiver<()>,
) {
    let lifetime = ConnectionLifetime::default();
    let place = Arc::new(place);
    let router = router
        .layer(from_fn(take_place))
        .layer(Extension(lifetime.clone()))
        .layer(Extension(Arc::clone(&place)));
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .keep_alive(false)
            .header_read_timeout(HEADERS_TIME_MAX)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
    );
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        // The sender sends nothing; it is dropped when the service stops.
        _ = stopped.changed() => None,
        () = lifetime.ended() => None,
        () = place.evicted() => return,
    };
    let ended = match ended {
        Some(ended) => Ok(ended),
        None => {
            connection.as_mut().graceful_shutdown();
            timeout(REQUEST_TIME_MAX, connection).await
        }
    };
    if let Ok(Err(error)) = ended {
        tracing::debug!(%error, "an admin connection broke");
    }
}

/// Rejects a request that finds no place; health has places of its own.
async fn take_place(
    Extension(place): Extension<Arc<AdminConnection>>,
    request: Request,
    next: Next,
) -> Response {
    if place.begin(HEALTH.contains(&request.uri().path())) {
        return next.run(request).await;
    }
    let message = "too many requests at once: try again";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message).into_response()
}

async fn limit_time(request: Request, next: Next) -> Result<Response, Infallible> {
    // A drain may wait for the last request of a replica.
    let time_max = if request.uri().path().ends_with("/drain") {
        REQUEST_TIME_MAX + Duration::from_millis(DRAIN_WAIT_MS_MAX)
    } else {
        REQUEST_TIME_MAX
    };
    let response = timeout(time_max, next.run(request)).await;
    Ok(response.unwrap_or_else(|_| {
        let message = format!("no response within {} s", time_max.as_secs());
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", message).into_response()
    }))
}

/// Rejects requests to a foreign host name.
async fn check_host(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST);
    if host.is_none_or(|host| is_local(host.as_bytes())) {
        return next.run(request).await;
    }
    let message = "on loopback this interface answers only requests to its IP address or `localhost`, since a web page \
         may own any other name: use the address";
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
    use super::*;

    #[test]
    fn addresses_and_localhost_are_local_and_other_names_are_not() {
        for host in [
            "127.0.0.1:9003",
            "127.0.0.1",
            "[::1]:9003",
            "LocalHost:9003",
        ] {
            assert!(is_local(host.as_bytes()), "{host}");
        }
        for host in [
            "attacker.example:9003",
            "127.0.0.1.example",
            "localhost.example",
            "",
            "a b",
        ] {
            assert!(!is_local(host.as_bytes()), "{host}");
        }
    }
}
