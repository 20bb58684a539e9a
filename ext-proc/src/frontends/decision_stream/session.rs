//! A decision stream: requests of the filter in, decisions out.
//!
//! Whenever the HTTP/2 connection polls it, the session reads every message that is there and answers with one message:
//! one frame, one write, and one wake-up of the Envoy worker. The session has no task of its own.
//!
//! A stream that breaks may hold request ends that are not read yet. The session reads them when it is dropped.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, Stream, StreamExt};
use isotherm_decision_proto::{
    Action, ClientMessage, DecisionRequest, DecisionResponse, GoAway, RequestEnd, ServerMessage,
};
use tokio::sync::oneshot::{self, error::RecvError};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::Status;

use super::response;
use crate::frontends::request::reply::Reply;
use crate::frontends::request::{
    ListenerKind, RequestContext, RequestHead, RequestLifecycle, RouteStatus,
};
use crate::pool::PoolDecision;

/// Limit of open requests on one stream: as many as a connection may have streams.
const OPEN_MAX: usize = 100_000;

/// Limit of messages that are read before other streams of the connection get their turn.
const MESSAGES_MAX: usize = 64;

const RESPONSES_MAX: usize = 1024;

/// The messages of the filter.
pub(crate) trait Inbound: Stream<Item = Result<ClientMessage, Status>> + Unpin {}

impl<I: Stream<Item = Result<ClientMessage, Status>> + Unpin> Inbound for I {}

/// A decision stream, which yields the messages of the service.
pub(crate) struct DecisionSession<I: Inbound> {
    context: Arc<RequestContext>,
    listener: ListenerKind,
    inbound: I,
    /// Requests that are queued or in flight, by the filter's request id.
    open: HashMap<u32, OpenRequest>,
    decisions: FuturesUnordered<QueuedDecision>,
    /// Serial number of the next request on this stream.
    next_serial: u64,
    stopping: WatchStream<bool>,
    /// Yields when a replica was found to hang.
    hangs: WatchStream<u64>,
    state: SessionState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionState {
    /// The service has not sent its first message.
    New,
    /// The session accepts requests.
    Serving,
    /// The service stops: the session leaves new requests to external processing.
    Draining,
    /// The filter has closed its side.
    Closed,
}

struct OpenRequest {
    lifecycle: RequestLifecycle,
    serial: u64,
}

/// Yields the decision on a queued request.
struct QueuedDecision {
    id: u32,
    /// The filter must not use a request id twice. If it does, the serial number keeps the decisions apart.
    serial: u64,
    receiver: oneshot::Receiver<PoolDecision>,
}

impl Future for QueuedDecision {
    type Output = (u32, u64, Result<PoolDecision, RecvError>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let decision = ready!(Pin::new(&mut self.receiver).poll(context));
        Poll::Ready((self.id, self.serial, decision))
    }
}

impl<I: Inbound> DecisionSession<I> {
    /// Serves the messages of `inbound`, about requests of one listener. The session drains when `stopping` turns true.
    pub(super) fn new(
        context: Arc<RequestContext>,
        listener: ListenerKind,
        stopping: watch::Receiver<bool>,
        inbound: I,
    ) -> Self {
        context.metrics.decision_streams.inc();
        let hangs = context.pool_registry.hangs();
        Self {
            context,
            listener,
            inbound,
            open: HashMap::new(),
            decisions: FuturesUnordered::new(),
            next_serial: 0,
            stopping: WatchStream::new(stopping),
            hangs: WatchStream::from_changes(hangs),
            state: SessionState::New,
        }
    }

    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Option<ServerMessage>> {
        if self.state == SessionState::New {
            self.state = SessionState::Serving;
            return Poll::Ready(Some(ServerMessage::default()));
        }
        let mut message = ServerMessage {
            responses: Vec::new(),
            go_away: self.starts_draining(context).then_some(GoAway {}),
        };
        // Decisions come first, so that a dispatched request is not taken for a queued one.
        self.take_decisions(context, &mut message.responses);
        self.take_messages(context, &mut message.responses);
        // A request end among the messages may have made room for a queued request.
        self.take_decisions(context, &mut message.responses);
        self.take_abandonments(context, &mut message.responses);
        if message.go_away.is_some() || !message.responses.is_empty() {
            return Poll::Ready(Some(message));
        }
        match self.state {
            SessionState::Closed => Poll::Ready(None),
            SessionState::Draining if self.open.is_empty() => Poll::Ready(None),
            SessionState::New | SessionState::Serving | SessionState::Draining => Poll::Pending,
        }
    }

    /// Starts to drain if the service stops. Returns whether it did so now.
    fn starts_draining(&mut self, context: &mut Context<'_>) -> bool {
        while self.state == SessionState::Serving {
            match self.stopping.poll_next_unpin(context) {
                Poll::Ready(Some(false)) => {}
                // A sender that is gone means that the service stops, too.
                Poll::Ready(Some(true) | None) => {
                    self.state = SessionState::Draining;
                    return true;
                }
                Poll::Pending => break,
            }
        }
        false
    }

    fn take_decisions(&mut self, context: &mut Context<'_>, responses: &mut Vec<DecisionResponse>) {
        while responses.len() < RESPONSES_MAX
            && let Poll::Ready(Some((id, serial, decision))) =
                self.decisions.poll_next_unpin(context)
        {
            let action = self.resolve(id, serial, decision);
            responses.extend(action.map(|action| response::response(id, action)));
        }
    }

    /// Responds to the requests of replicas that hang.
    fn take_abandonments(
        &mut self,
        context: &mut Context<'_>,
        responses: &mut Vec<DecisionResponse>,
    ) {
        let mut has_hung = false;
        while let Poll::Ready(Some(_)) = self.hangs.poll_next_unpin(context) {
            has_hung = true;
        }
        if has_hung {
            // Rare, so no request is known by its replica.
            let abandoned = self.open.iter().filter_map(|(id, open)| {
                let (replica, reply) = open.lifecycle.take_abandonment()?;
                let action = response::abandonment(&replica, &reply);
                Some(response::response(*id, action))
            });
            responses.extend(abandoned);
        }
    }

    fn take_messages(&mut self, context: &mut Context<'_>, responses: &mut Vec<DecisionResponse>) {
        for _ in 0..MESSAGES_MAX {
            if self.state == SessionState::Closed || responses.len() >= RESPONSES_MAX {
                return;
            }
            match self.inbound.poll_next_unpin(context) {
                Poll::Ready(Some(Ok(message))) => self.handle_message(&message, responses),
                Poll::Ready(Some(Err(_)) | None) => self.state = SessionState::Closed,
                Poll::Pending => return,
            }
        }
        // More messages may be there, and no waker is registered for them.
        context.waker().wake_by_ref();
    }

    fn handle_message(&mut self, message: &ClientMessage, responses: &mut Vec<DecisionResponse>) {
        for stored in &message.stored {
            if let Some(open) = self.open.get(&stored.request_id) {
                open.lifecycle.store_response(&stored.response_id);
            }
        }
        // Ends come before requests: they make room for the requests of the same message.
        message.ends.iter().for_each(|end| self.handle_end(end));
        for id in &message.starts {
            if let Some(open) = self.open.get_mut(id) {
                open.lifecycle.begin_response();
            }
        }
        for request in &message.requests {
            let action = self.handle_request(request);
            responses.push(response::response(request.request_id, action));
        }
    }

    fn handle_request(&mut self, request: &DecisionRequest) -> Action {
        let table = self.context.pool_registry.table();
        let is_for_ext_proc = self.state != SessionState::Serving || self.open.len() >= OPEN_MAX;
        let id = request.request_id;
        let entry = match self.open.entry(id) {
            Entry::Vacant(entry) if !is_for_ext_proc => entry,
            Entry::Vacant(_) | Entry::Occupied(_) => return response::ext_proc_fallback(),
        };
        let headers = request.headers.iter();
        let headers = headers.map(|header| (&*header.name, &*header.value));
        let mut head = RequestHead::read(headers, self.listener, &self.context.metrics);
        let serial = self.next_serial;
        // 2^64 requests do not happen.
        self.next_serial = serial.wrapping_add(1);
        head.request.tells_start = true;
        let mut lifecycle = RequestLifecycle::new(Arc::clone(&self.context));
        match lifecycle.route(head, &table) {
            RouteStatus::Replied(reply) => {
                if lifecycle.is_in_flight() {
                    entry.insert(OpenRequest { lifecycle, serial });
                }
                // External processing gets a request that passes through, and counts it.
                if !matches!(reply, Reply::PassThrough(_)) {
                    self.context.metrics.count_request(reply.kind());
                }
                response::action(reply)
            }
            RouteStatus::Queued { timeout, decision } => {
                entry.insert(OpenRequest { lifecycle, serial });
                self.decisions.push(QueuedDecision {
                    id,
                    serial,
                    receiver: decision,
                });
                response::wait(timeout)
            }
        }
    }

    fn resolve(
        &mut self,
        id: u32,
        serial: u64,
        decision: Result<PoolDecision, RecvError>,
    ) -> Option<Action> {
        let open = self.open.get_mut(&id)?;
        if open.serial != serial {
            return None;
        }
        let reply = open.lifecycle.resolve(decision)?;
        if !open.lifecycle.is_in_flight() {
            self.open.remove(&id);
        }
        self.context.metrics.count_request(reply.kind());
        Some(response::action(reply))
    }

    fn handle_end(&mut self, end: &RequestEnd) {
        // Dropping a request that is queued, or that has no outcome, releases it.
        if let Some(mut open) = self.open.remove(&end.request_id)
            && open.lifecycle.is_in_flight()
            && !end.outcome.is_empty()
        {
            open.lifecycle.finish_reported(Some(&end.outcome));
        }
    }
}

impl<I: Inbound> Stream for DecisionSession<I> {
    type Item = Result<ServerMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_message(context).map(|message| message.map(Ok))
    }
}

impl<I: Inbound> Drop for DecisionSession<I> {
    fn drop(&mut self) {
        self.context.metrics.decision_streams.dec();
        // Queued requests go first: the end of one in flight must not dispatch a request of this stream.
        self.open.retain(|_, open| open.lifecycle.is_in_flight());
        while self.state != SessionState::Closed
            && !self.open.is_empty()
            && let Some(Some(Ok(message))) = self.inbound.next().now_or_never()
        {
            message.ends.iter().for_each(|end| self.handle_end(end));
        }
    }
}

#[cfg(test)]
mod tests;
