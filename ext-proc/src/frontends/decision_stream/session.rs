//! One decision stream: what the filter says on it, and what it hears.
//!
//! Whenever the decision stream's task wakes it takes everything that is there, and says what there is to say in one message: that
//! is one frame, one write and one wake-up of Envoy's worker for all of it. It has no task of its own, like an exchange.
//!
//! A decision stream that breaks may have ends on it that nobody has read yet; like an exchange it looks for them last.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, Stream, StreamExt};
use isotherm_decision_proto::{
    Action, ClientMessage, DecisionRequest, DecisionResponse, GoAway, RequestEnd, ServerMessage,
};
use tokio::sync::oneshot::{self, error::RecvError};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::Status;

use super::super::request::head::RequestHead;
use super::super::request::reply::Reply;
use super::super::request::{Context, Listener};
use super::super::request::{Placed, RequestLifecycle};
use super::response;
use crate::pool::PoolDecision;

/// The most requests that a decision stream may have open: as many as a connection may have streams.
const OPEN_MAX: usize = 100_000;

/// The most messages that are read before something else gets its turn.
const MESSAGES_MAX: usize = 64;

/// The most responses in one message.
const RESPONSES_MAX: usize = 1024;

/// What the filter says.
pub(super) trait Inbound: Stream<Item = Result<ClientMessage, Status>> + Unpin {}

impl<I: Stream<Item = Result<ClientMessage, Status>> + Unpin> Inbound for I {}

/// One decision stream; as a stream, what the filter hears.
pub(super) struct Conversation<I: Inbound> {
    context: Arc<Context>,
    inbound: I,
    /// The requests that wait or were sent.
    open: HashMap<u32, Open>,
    verdicts: FuturesUnordered<Awaited>,
    /// The request that comes next, among all of this decision stream.
    next_turn: u64,
    stopping: WatchStream<bool>,
    progress: Progress,
}

/// How far the decision stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Nothing was said.
    New,
    /// It is good.
    Good,
    /// The service stops.
    Leaving,
    /// The filter says no more.
    Over,
}

/// A request that waits or was sent.
struct Open {
    lifecycle: RequestLifecycle,
    turn: u64,
}

/// The verdict on a request that waits.
struct Awaited {
    id: u32,
    /// Numbers that are used twice are against the rules, but must not make one request hear of another's.
    turn: u64,
    verdict: oneshot::Receiver<PoolDecision>,
}

impl Future for Awaited {
    type Output = (u32, u64, Result<PoolDecision, RecvError>);

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let verdict = ready!(Pin::new(&mut self.verdict).poll(context));
        Poll::Ready((self.id, self.turn, verdict))
    }
}

impl<I: Inbound> Conversation<I> {
    /// What is said to what comes in on `inbound`. `stopping` turns true when the service stops.
    pub(super) fn new(context: Arc<Context>, stopping: watch::Receiver<bool>, inbound: I) -> Self {
        context.metrics.decision_streams.inc();
        Self {
            context,
            inbound,
            open: HashMap::new(),
            verdicts: FuturesUnordered::new(),
            next_turn: 0,
            stopping: WatchStream::new(stopping),
            progress: Progress::New,
        }
    }

    fn poll_said(&mut self, context: &mut TaskContext<'_>) -> Poll<Option<ServerMessage>> {
        if self.progress == Progress::New {
            self.progress = Progress::Good;
            return Poll::Ready(Some(ServerMessage::default()));
        }
        let mut said = ServerMessage {
            responses: Vec::new(),
            go_away: self.begins_to_leave(context).then_some(GoAway {}),
        };
        // The verdicts first: a request that was sent on its way must not be taken for one that still waits.
        self.take_verdicts(context, &mut said.responses);
        self.take_messages(context, &mut said.responses);
        // What came in may have made room for what waits.
        self.take_verdicts(context, &mut said.responses);
        if said.go_away.is_some() || !said.responses.is_empty() {
            return Poll::Ready(Some(said));
        }
        match self.progress {
            Progress::Over => Poll::Ready(None),
            Progress::Leaving if self.open.is_empty() => Poll::Ready(None),
            Progress::New | Progress::Good | Progress::Leaving => Poll::Pending,
        }
    }

    /// Whether the filter is to hear now that the service stops.
    fn begins_to_leave(&mut self, context: &mut TaskContext<'_>) -> bool {
        while self.progress == Progress::Good {
            match self.stopping.poll_next_unpin(context) {
                Poll::Ready(Some(false)) => {}
                // Who could say that it stops is gone: that is a stop, too.
                Poll::Ready(Some(true) | None) => {
                    self.progress = Progress::Leaving;
                    return true;
                }
                Poll::Pending => break,
            }
        }
        false
    }

    fn take_verdicts(
        &mut self,
        context: &mut TaskContext<'_>,
        responses: &mut Vec<DecisionResponse>,
    ) {
        while responses.len() < RESPONSES_MAX
            && let Poll::Ready(Some((id, turn, verdict))) = self.verdicts.poll_next_unpin(context)
        {
            self.told(id, turn, verdict, responses);
        }
    }

    fn take_messages(
        &mut self,
        context: &mut TaskContext<'_>,
        responses: &mut Vec<DecisionResponse>,
    ) {
        for _ in 0..MESSAGES_MAX {
            if self.progress == Progress::Over || responses.len() >= RESPONSES_MAX {
                return;
            }
            match self.inbound.poll_next_unpin(context) {
                Poll::Ready(Some(Ok(message))) => self.hear(&message, responses),
                Poll::Ready(Some(Err(_)) | None) => self.progress = Progress::Over,
                Poll::Pending => return,
            }
        }
        // There may be more, which nobody wakes for.
        context.waker().wake_by_ref();
    }

    fn hear(&mut self, message: &ClientMessage, responses: &mut Vec<DecisionResponse>) {
        // What has ended makes room for what is asked in the same message.
        for end in &message.ends {
            self.end(end);
        }
        for ask in &message.requests {
            let action = self.ask(ask);
            responses.push(response::encode(ask.request_id, action));
        }
    }

    fn ask(&mut self, ask: &DecisionRequest) -> Action {
        let table = self.context.pool_registry.table();
        let is_elsewheres = self.progress != Progress::Good
            || self.open.len() >= OPEN_MAX
            || table.peer_table().is_some();
        let entry = match self.open.entry(ask.request_id) {
            Entry::Vacant(entry) if !is_elsewheres => entry,
            Entry::Vacant(_) | Entry::Occupied(_) => return response::ext_proc_fallback(),
        };
        let headers = ask.headers.iter();
        let headers = headers.map(|header| (&*header.name, &*header.value));
        let head = RequestHead::of(headers, Listener::Clients, &self.context.metrics);
        let turn = self.next_turn;
        // 2^64 requests do not happen.
        self.next_turn = turn.wrapping_add(1);
        let mut lifecycle = RequestLifecycle::new(Arc::clone(&self.context));
        match lifecycle.place(head, &table) {
            Placed::Decided(reply) => {
                if lifecycle.is_sent() {
                    entry.insert(Open { lifecycle, turn });
                }
                // What is passed on is counted by external processing, which is asked next.
                if !matches!(reply, Reply::PassThrough(_)) {
                    self.context.metrics.count_request(reply.kind());
                }
                response::action(reply)
            }
            Placed::Waits { timeout, verdict } => {
                entry.insert(Open { lifecycle, turn });
                self.verdicts.push(Awaited {
                    id: ask.request_id,
                    turn,
                    verdict,
                });
                response::wait(timeout)
            }
        }
    }

    fn told(
        &mut self,
        id: u32,
        turn: u64,
        verdict: Result<PoolDecision, RecvError>,
        responses: &mut Vec<DecisionResponse>,
    ) {
        let Entry::Occupied(mut entry) = self.open.entry(id) else {
            return;
        };
        if entry.get().turn != turn {
            return;
        }
        let lifecycle = &mut entry.get_mut().lifecycle;
        let Some(reply) = lifecycle.told(verdict) else {
            return;
        };
        if !lifecycle.is_sent() {
            entry.remove();
        }
        self.context.metrics.count_request(reply.kind());
        responses.push(response::encode(id, response::action(reply)));
    }

    fn end(&mut self, end: &RequestEnd) {
        // Without an outcome, or while it waits, to forget it is all: whatever it holds comes free.
        if let Some(mut open) = self.open.remove(&end.request_id)
            && open.lifecycle.is_sent()
            && !end.outcome.is_empty()
        {
            open.lifecycle.ended(Some(&end.outcome));
        }
    }
}

impl<I: Inbound> Stream for Conversation<I> {
    type Item = Result<ServerMessage, Status>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
    ) -> Poll<Option<Self::Item>> {
        self.poll_said(context).map(|said| said.map(Ok))
    }
}

impl<I: Inbound> Drop for Conversation<I> {
    fn drop(&mut self) {
        self.context.metrics.decision_streams.dec();
        // First who waits: nobody is to be sent to a place that comes free only because all of them go.
        self.open.retain(|_, open| open.lifecycle.is_sent());
        while self.progress != Progress::Over
            && !self.open.is_empty()
            && let Some(Some(Ok(message))) = self.inbound.next().now_or_never()
        {
            for end in &message.ends {
                self.end(end);
            }
        }
    }
}

#[cfg(test)]
mod tests;
