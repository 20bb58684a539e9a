//! The listening socket of one replica, and the connections it took.
//!
//! An accept loop replaces `axum::serve`, because faults act on the socket: it closes, opens again on the same port, and cuts
//! every connection at once. HTTP/1.1 only, as vLLM.

use core::time::Duration;
use std::io;
use std::sync::Arc;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::fault::SocketOrder;
use super::replica::Replica;
use super::routes;

/// Pause after a failed accept, most likely for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections held at once; more wait in the kernel until one ends.
pub const CONNECTIONS_MAX: usize = 20_000;

/// Serves until a crash is ordered.
pub async fn serve(replica: Arc<Replica>, listener: TcpListener) -> io::Result<()> {
    let address = listener.local_addr()?;
    let router = routes::router(Arc::clone(&replica));
    let mut orders = replica.faults.socket();
    // Everything spawned here ends with this set: the driver, and every connection.
    let mut tasks = JoinSet::new();
    tasks.spawn(drive(replica));
    let mut listener = Some(listener);
    loop {
        let order = *orders.borrow_and_update();
        match order {
            SocketOrder::Serve => {}
            SocketOrder::Refuse(span) => {
                drop(listener.take());
                tokio::select! {
                    () = tokio::time::sleep(span) => {}
                    _ = orders.changed() => continue,
                }
            }
            SocketOrder::Crash(after) => {
                if let Some(listener) = &listener {
                    // The replica serves until the crash.
                    let _ = tokio::time::timeout(after, accept_all(listener, &router, &mut tasks))
                        .await;
                }
                return Ok(());
            }
        }
        let open = match listener.take() {
            Some(open) => open,
            None => TcpListener::bind(address).await?,
        };
        tokio::select! {
            () = accept_all(&open, &router, &mut tasks) => {}
            changed = orders.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
            }
        }
        listener = Some(open);
    }
}

/// Takes connections for ever.
async fn accept_all(listener: &TcpListener, router: &Router, tasks: &mut JoinSet<()>) {
    loop {
        // One of the tasks is the driver, which never ends.
        while tasks.len() > CONNECTIONS_MAX {
            tasks.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                tasks.spawn(connection(stream, router.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
        while tasks.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, router: Router) {
    // Small chunks must not wait for one another.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    let service = TowerToHyperService::new(router);
    // An idle connection stays open: closing it would race with the next request of a proxy that keeps it in its pool.
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(None);
    let served = builder
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended");
    }
}

/// Advances the engine at each of its events, until the future is dropped.
async fn drive(replica: Arc<Replica>) {
    loop {
        let wait = replica.advance().unwrap_or(Duration::MAX);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = replica.wake.notified() => {}
        }
    }
}
