//! Threads that serve connections, each connection on one of them.
//!
//! Each worker thread of an Envoy keeps one connection to this service, and all of its requests are streams of that
//! connection. A runtime whose threads share their work moves a stream's task to another thread than its connection's, and
//! then nearly every message wakes a thread that sleeps: there were more of these wake-ups than messages, and they were
//! a fifth of the service's processor time. So a connection, with all of its streams, stays on one thread, whose
//! runtime has no other; threads meet only at the pools' locks, for microseconds.
//!
//! Connections are dealt out in turn. A listener in each thread was rejected: there the kernel decides, and may give one
//! thread all of an Envoy's few connections for as long as they live.

use std::future::Future;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::Context as _;
use futures_util::StreamExt;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;

use super::envoys::Envoys;
use super::grpc::{self, Services};
use super::listen::Accepted;

/// The most threads. Decisions of one pool are made one after the other anyway.
const WORKERS_MAX: usize = 16;

/// The most connections that wait for a thread to take them.
const DEALT_MAX: usize = 256;

/// How a thread ended.
type Ended = oneshot::Receiver<anyhow::Result<()>>;

/// The threads, for those who have connections to deal out.
#[derive(Clone, Debug)]
pub(super) struct Workers {
    hands: Arc<[mpsc::Sender<Accepted>]>,
    next: Arc<AtomicUsize>,
}

/// The threads' lives: they end with this, whatever they do.
#[derive(Debug)]
pub(super) struct Lives(Vec<(Ended, oneshot::Sender<()>)>);

impl Workers {
    /// Starts as many threads as there are processors. Each serves until `stop` resolves and its streams have ended.
    pub(super) fn start<S>(
        services: &Services,
        stop: impl Fn() -> S,
    ) -> anyhow::Result<(Self, Lives)>
    where
        S: Future<Output = ()> + Send + 'static,
    {
        let count = thread::available_parallelism().map_or(1, NonZero::get);
        let (mut hands, mut lives) = (Vec::new(), Vec::new());
        for number in 0..count.min(WORKERS_MAX) {
            let (hand, dealt) = mpsc::channel(DEALT_MAX);
            let (told, ended) = oneshot::channel();
            let (life, dropped) = oneshot::channel();
            let (services, stop) = (services.clone(), stop());
            let run = move || {
                // Nobody listens any more when everything is given up.
                drop(told.send(work(services, dealt, stop, dropped)));
            };
            thread::Builder::new()
                .name(format!("isotherm-grpc-{number}"))
                .spawn(run)
                .context("cannot start a thread for connections")?;
            hands.push(hand);
            lives.push((ended, life));
        }
        let workers = Self {
            hands: hands.into(),
            next: Arc::default(),
        };
        Ok((workers, Lives(lives)))
    }

    /// Gives a connection to the next thread.
    pub(super) async fn deal(&self, connection: Accepted) {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let hand = turn
            .checked_rem(self.hands.len())
            .and_then(|index| self.hands.get(index));
        if let Some(hand) = hand {
            // A thread that takes nothing more has stopped, and so has everything else.
            drop(hand.send(connection).await);
        }
    }
}

impl Lives {
    /// Resolves when all have ended, or one has failed.
    pub(super) async fn ended(self) -> anyhow::Result<()> {
        for (ended, _life) in self.0 {
            ended
                .await
                .context("a thread that serves connections ended without a reason")??;
        }
        Ok(())
    }
}

/// What one thread does, until `stop` and the end of its streams, or until `dropped`.
fn work(
    services: Services,
    dealt: mpsc::Receiver<Accepted>,
    stop: impl Future<Output = ()> + Send + 'static,
    dropped: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot make a runtime for connections")?;
    let envoys: Envoys = services.envoys.clone();
    runtime.block_on(async {
        let incoming = ReceiverStream::new(dealt).filter_map(|accepted| {
            let stream = accepted.into_stream().map(|stream| envoys.watch(stream));
            // An error would end the server: one connection less is all that it means.
            let stream = stream.inspect_err(|error| tracing::warn!(%error, "a connection is lost"));
            std::future::ready(stream.ok().map(Ok))
        });
        tokio::select! {
            served = grpc::serve(services, incoming, stop) => served,
            _ = dropped => Ok(()),
        }
    })
}
