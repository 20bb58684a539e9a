//! Threads that serve connections, each connection on one of them.
//!
//! Each Envoy worker keeps one connection to the service, and all of its requests are streams of that connection. A
//! work-stealing runtime moves the task of a stream to another thread than that of its connection, and nearly every message
//! then wakes a sleeping thread. A connection and all of its streams therefore stay on one thread with a runtime of its
//! own. Threads meet only at the locks of the pools, for microseconds.
//!
//! Connections are assigned in turn. Rejected: a listener in each thread. The kernel then chooses the thread, and may give
//! all of an Envoy's few connections to one thread for as long as they live.

use std::future::Future;
use std::num::NonZero;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::Context as _;
use futures_util::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;

use super::envoys::EnvoyConnections;
use super::grpc::{self, Services};
use super::listen::{AcceptedConnection, Socket};
use crate::accept::accept_next;

/// Limit of threads. Decisions of one pool follow one another anyway.
const WORKERS_MAX: usize = 16;

/// Limit of connections that wait for one thread.
const ASSIGNED_MAX: usize = 256;

/// Limit of open connections of one socket; further ones wait until one ends. An Envoy has one for each of its workers.
const CONNECTIONS_MAX: usize = 1024;

/// A connection, with its place among those of its socket.
type AssignedConnection = (AcceptedConnection, OwnedSemaphorePermit);

/// Yields the result of a thread.
type WorkerResult = oneshot::Receiver<anyhow::Result<()>>;

/// Assigns connections to the threads.
#[derive(Clone, Debug)]
pub(super) struct Workers {
    senders: Arc<[mpsc::Sender<AssignedConnection>]>,
    next: Arc<AtomicUsize>,
}

/// The results of the threads. Dropping this ends the threads at once.
#[derive(Debug)]
pub(super) struct WorkerResults(Vec<(WorkerResult, oneshot::Sender<()>)>);

impl Workers {
    /// Starts as many threads as there are processors. Each serves until `stop` resolves and its streams have ended.
    pub(super) fn start<S>(
        services: &Services,
        stop: impl Fn() -> S,
    ) -> anyhow::Result<(Self, WorkerResults)>
    where
        S: Future<Output = ()> + Send + 'static,
    {
        let count = thread::available_parallelism().map_or(1, NonZero::get);
        let (mut senders, mut results) = (Vec::new(), Vec::new());
        for number in 0..count.min(WORKERS_MAX) {
            let (sender, assigned) = mpsc::channel(ASSIGNED_MAX);
            let (report, result) = oneshot::channel();
            let (keep_alive, dropped) = oneshot::channel();
            let (services, stop) = (services.clone(), stop());
            let run = move || {
                // Without a receiver, the service has given up waiting.
                drop(report.send(work(services, assigned, stop, dropped)));
            };
            thread::Builder::new()
                .name(format!("isotherm-grpc-{number}"))
                .spawn(run)
                .context("cannot start a thread for connections")?;
            senders.push(sender);
            results.push((result, keep_alive));
        }
        let workers = Self {
            senders: senders.into(),
            next: Arc::default(),
        };
        Ok((workers, WorkerResults(results)))
    }

    /// Accepts connections of a socket and assigns them to threads, until `stop` resolves.
    pub(super) async fn accept(self, socket: Socket, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let connection = tokio::select! {
                () = &mut stop => return,
                connection = accept_next(&permits, || socket.accept()) => connection,
            };
            self.assign(connection).await;
        }
    }

    /// Assigns a connection to the next thread.
    async fn assign(&self, connection: AssignedConnection) {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let sender = turn
            .checked_rem(self.senders.len())
            .and_then(|index| self.senders.get(index));
        if let Some(sender) = sender {
            // A thread that takes no connection has stopped, and so has the service.
            drop(sender.send(connection).await);
        }
    }
}

impl WorkerResults {
    /// Waits until all threads have ended, or one has failed.
    pub(super) async fn wait(self) -> anyhow::Result<()> {
        for (result, _keep_alive) in self.0 {
            result
                .await
                .context("a thread that serves connections ended without a reason")??;
        }
        Ok(())
    }
}

/// Serves connections until `stop` resolves and all streams have ended, or until `dropped` resolves.
fn work(
    services: Services,
    assigned: mpsc::Receiver<AssignedConnection>,
    stop: impl Future<Output = ()> + Send + 'static,
    dropped: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot make a runtime for connections")?;
    let envoys: EnvoyConnections = services.envoys.clone();
    runtime.block_on(async {
        // A slow handshake keeps no other connection waiting.
        let streams = ReceiverStream::new(assigned)
            .map(|(connection, permit)| connection.into_stream(permit))
            .buffer_unordered(ASSIGNED_MAX);
        let incoming = streams.filter_map(|stream| {
            // An error here would end the server, so it only drops the connection.
            let stream = stream.inspect_err(|error| {
                tracing::warn!(error = format!("{error:#}"), "connection lost");
            });
            std::future::ready(stream.ok().map(|stream| Ok(envoys.track(stream))))
        });
        tokio::select! {
            served = grpc::serve(services, incoming, stop) => served,
            _ = dropped => Ok(()),
        }
    })
}
