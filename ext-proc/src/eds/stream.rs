//! The part that both protocols share: read Envoy's requests, and send what has changed.

use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use tokio::sync::watch;
use tonic::Status;

use super::EdsContext;
use crate::pool::PoolTable;

/// The state of one stream, free of I/O.
pub(super) trait StreamState: Default + Send + 'static {
    type Request: Send + 'static;
    type Response: Send + 'static;

    /// Handles a request of Envoy. Returns the reason if Envoy refuses the last response. An error ends the stream.
    fn handle(&mut self, request: Self::Request) -> Result<Option<String>, Status>;

    /// Returns what has changed for this Envoy since the last response.
    fn changes(&mut self, table: &PoolTable) -> Option<Self::Response>;
}

pub(super) fn follow<I, S>(
    context: Arc<EdsContext>,
    inbound: I,
) -> impl Stream<Item = Result<S::Response, Status>> + Send + 'static
where
    S: StreamState,
    I: Stream<Item = Result<S::Request, Status>> + Send + Unpin + 'static,
{
    context.metrics.eds_streams.inc();
    let follower = StreamFollower {
        revision: context.pool_registry.revision(),
        stopping: context.stopping.clone(),
        context,
        inbound,
        state: S::default(),
        has_failed: false,
    };
    futures_util::stream::unfold(follower, |mut follower| async move {
        let item = follower.next().await?;
        Some((item, follower))
    })
}

struct StreamFollower<I, S> {
    context: Arc<EdsContext>,
    inbound: I,
    state: S,
    revision: watch::Receiver<u64>,
    stopping: watch::Receiver<bool>,
    has_failed: bool,
}

impl<I, S> StreamFollower<I, S>
where
    S: StreamState,
    I: Stream<Item = Result<S::Request, Status>> + Unpin,
{
    async fn next(&mut self) -> Option<Result<S::Response, Status>> {
        if self.has_failed {
            return None;
        }
        loop {
            // Marked first: a change during the comparison causes one more.
            self.revision.mark_unchanged();
            if let Some(response) = self.state.changes(&self.context.pool_registry.table()) {
                self.context.metrics.eds_pushes.inc();
                return Some(Ok(response));
            }
            tokio::select! {
                message = self.inbound.next() => match self.state.handle(message?.ok()?) {
                    Ok(None) => {}
                    Ok(Some(reason)) => {
                        self.context.metrics.eds_nacks.inc();
                        tracing::warn!(reason, "Envoy refuses an endpoint update");
                    }
                    Err(status) => {
                        self.has_failed = true;
                        return Some(Err(status));
                    }
                },
                changed = self.revision.changed() => changed.ok()?,
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
            }
        }
    }
}

impl<I, S> Drop for StreamFollower<I, S> {
    fn drop(&mut self) {
        self.context.metrics.eds_streams.dec();
    }
}
