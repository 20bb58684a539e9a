//! What both protocols have in common: hear what Envoy says, look whether anything changed for it, send that.

use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use tokio::sync::watch;
use tonic::Status;

use super::Context;
use crate::pool::PoolTable;

/// One stream's memory, free of I/O.
pub(super) trait Session: Send + 'static {
    /// What Envoy sends.
    type Request: Send + 'static;
    /// What it is sent.
    type Response: Send + 'static;

    /// Takes in what Envoy says. An error ends the stream.
    fn hear(&mut self, request: Self::Request) -> Result<Heard, Status>;

    /// What has changed for this Envoy since it was sent something last.
    fn changes(&mut self, table: &PoolTable) -> Option<Self::Response>;
}

/// What there is to note about a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing.
    Nothing,
    /// Envoy refused the last response, for this reason.
    Refused(String),
}

/// Answers one stream of Envoy's.
pub(super) fn follow<I, S>(
    context: Arc<Context>,
    inbound: I,
    session: S,
) -> impl Stream<Item = Result<S::Response, Status>> + Send + 'static
where
    S: Session,
    I: Stream<Item = Result<S::Request, Status>> + Send + Unpin + 'static,
{
    context.metrics.eds_streams.inc();
    let follower = Follower {
        revision: context.pool_registry.revision(),
        stopping: context.stopping.clone(),
        context,
        inbound,
        session,
        failed: false,
    };
    futures_util::stream::unfold(follower, |mut follower| async move {
        let item = follower.next().await?;
        Some((item, follower))
    })
}

struct Follower<I, S> {
    context: Arc<Context>,
    inbound: I,
    session: S,
    revision: watch::Receiver<u64>,
    stopping: watch::Receiver<bool>,
    failed: bool,
}

impl<I, S> Follower<I, S>
where
    S: Session,
    I: Stream<Item = Result<S::Request, Status>> + Unpin,
{
    async fn next(&mut self) -> Option<Result<S::Response, Status>> {
        if self.failed {
            return None;
        }
        loop {
            // Marked as seen first: a change that comes while the table is read is looked at once more.
            self.revision.mark_unchanged();
            if let Some(response) = self.session.changes(&self.context.pool_registry.table()) {
                self.context.metrics.eds_pushes.inc();
                return Some(Ok(response));
            }
            tokio::select! {
                message = self.inbound.next() => match self.session.hear(message?.ok()?) {
                    Ok(Heard::Nothing) => {}
                    Ok(Heard::Refused(why)) => {
                        self.context.metrics.eds_nacks.inc();
                        tracing::warn!(why, "Envoy refuses the endpoints that it was sent");
                    }
                    Err(status) => {
                        self.failed = true;
                        return Some(Err(status));
                    }
                },
                changed = self.revision.changed() => changed.ok()?,
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
            }
        }
    }
}

impl<I, S> Drop for Follower<I, S> {
    fn drop(&mut self) {
        self.context.metrics.eds_streams.dec();
    }
}
