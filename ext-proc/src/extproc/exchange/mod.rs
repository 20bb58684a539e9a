//! One request of Envoy's, from its headers to the end of its response: one gRPC stream.
//!
//! The exchange is polled by the HTTP/2 connection itself; it has no task and no channel of its own, so that ten
//! thousand waiting requests are ten thousand small structures and nothing else. Whatever ends the stream drops the
//! exchange, and with it the [`Ticket`], which gives the request's place back.
//!
//! While a request waits, what Envoy sends meanwhile is left where it is (HTTP/2 flow control holds it back), apart
//! from one message, which has to be read to see the stream's end.
//!
//! A client that has the whole body of its response may close at once, and then Envoy resets the stream right behind
//! the message with the outcome, which nobody has read yet. So the last thing that an exchange does is to look whether
//! that message is there (one outcome in ten was lost before it did).

mod settle;

use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::HeaderMap;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    ProcessingRequest, ProcessingResponse, ProtocolConfiguration,
};
use futures_util::{FutureExt, Stream, StreamExt};
use isotherm_fingerprint::names;
use isotherm_fingerprint::outcome::Outcome;
use isotherm_router::RejectReason;
use tokio::sync::oneshot;
use tonic::Status;

use super::decision::About;
use super::head::{self, Head};
use super::place::Place;
use super::{Context, Listener, answer, decision, openai};
use crate::driver::{Directory, Pool, Progress, Ticket, Verdict};
use crate::metrics::Answer;

/// How much longer Envoy is told to wait than the queue keeps a request: the queue's own answer comes first.
const WAIT_SLACK: Duration = Duration::from_secs(5);

/// `FULL_DUPLEX_STREAMED` of Envoy's `ProcessingMode.BodySendMode`.
const FULL_DUPLEX: i32 = 4;

/// What Envoy sends on one stream.
pub(super) trait Inbound:
    Stream<Item = Result<ProcessingRequest, Status>> + Send + Unpin + 'static
{
}

impl<I> Inbound for I where
    I: Stream<Item = Result<ProcessingRequest, Status>> + Send + Unpin + 'static
{
}

/// One request of Envoy's.
pub(super) struct Exchange<I: Inbound> {
    context: Arc<Context>,
    listener: Listener,
    inbound: I,
    stage: Stage,
    /// Read while the request waited; to be answered next.
    held_back: Option<ProcessingRequest>,
    /// Envoy sends bodies in full-duplex mode: of requests, of responses.
    full_duplex: (bool, bool),
}

/// How far the request is.
enum Stage {
    /// Its headers have not been seen.
    Fresh,
    /// It waits for a replica.
    Waiting(Waiting),
    /// It was sent to a replica, or to another region.
    Sent(Ticket),
    /// Nothing is expected of it any more.
    Settled,
    /// The last answer was given: the stream ends. Either the client has its response from here, or it has ended.
    Answered,
}

struct Waiting {
    ticket: Ticket,
    verdict: oneshot::Receiver<Verdict>,
    about: About,
}

impl<I: Inbound> Exchange<I> {
    /// The answers to what comes in on `inbound`.
    pub(super) fn answers(
        context: Arc<Context>,
        listener: Listener,
        inbound: I,
    ) -> impl Stream<Item = Result<ProcessingResponse, Status>> + Send + 'static {
        context.metrics.streams.inc();
        let exchange = Self {
            context,
            listener,
            inbound,
            stage: Stage::Fresh,
            held_back: None,
            full_duplex: (false, false),
        };
        futures_util::stream::unfold(exchange, |mut exchange| async move {
            let answer = exchange.next_answer().await?;
            Some((Ok(answer), exchange))
        })
    }

    /// The next message for Envoy; `None` at the end of the stream.
    async fn next_answer(&mut self) -> Option<ProcessingResponse> {
        if let Stage::Waiting(_) = self.stage {
            return self.wait().await;
        }
        if let Stage::Answered = self.stage {
            return None;
        }
        loop {
            let message = self.receive().await?;
            if let Some(config) = &message.protocol_config {
                self.full_duplex = full_duplex(config);
            }
            // Envoy listens to no answer in this mode, so a decision would steer nothing.
            let listens = !message.observability_mode;
            let metadata = message.metadata_context;
            let Some(request) = message.request.filter(|_| listens) else {
                continue;
            };
            return Some(match request {
                Request::RequestHeaders(headers) => {
                    let head = Head::read(
                        headers.headers.as_ref(),
                        metadata.as_ref(),
                        self.listener,
                        &self.context.metrics,
                    );
                    self.place(&head)
                }
                Request::ResponseHeaders(_) => answer::response_headers(),
                Request::RequestBody(body) => answer::body(body, self.full_duplex.0, true),
                Request::ResponseBody(body) => answer::body(body, self.full_duplex.1, false),
                Request::RequestTrailers(_) => answer::request_trailers(),
                Request::ResponseTrailers(trailers) => self.outcome(trailers.trailers.as_ref()),
            });
        }
    }

    /// The next message of Envoy's; `None` once the stream has ended. How it did says nothing: to the client's going
    /// away, and to the end of a response that nobody reports on, Envoy puts the same end.
    async fn receive(&mut self) -> Option<ProcessingRequest> {
        match self.held_back.take() {
            Some(message) => Some(message),
            None => self.inbound.next().await?.ok(),
        }
    }

    fn place(&mut self, head: &Head) -> ProcessingResponse {
        let table = self.context.fleet.table();
        let place = Place::of(head, &table);
        let guest = head.origin.is_guest(table.directory().map(Arc::as_ref));
        tracing::trace!(path = head.path, model = head.model, ?place, "request");
        match place {
            Place::Route(pool) => self.submit(&pool, head, table.directory()),
            Place::Pass(cluster) => {
                self.stage = Stage::Settled;
                self.context.metrics.answered(Answer::Passed);
                answer::passed(cluster.as_deref(), &head.carried)
            }
            Place::Models => {
                let models = openai::models(table.pools().iter(), self.context.started_unix_s);
                self.immediate(Answer::Models, 200, &models, "models")
            }
            Place::Model(id) => {
                let model = openai::model(&id, self.context.started_unix_s);
                self.immediate(Answer::Models, 200, &model, "models")
            }
            Place::UnknownModel(id) => {
                tracing::debug!(model = id, "no pool serves this model");
                let body = openai::unknown_model(&id);
                if guest {
                    // The region that forwarded it knows its pool: its client must not hear that nobody does.
                    self.refused("unknown_model", &body, None)
                } else {
                    self.immediate(Answer::NotFound, 404, &body, "unknown_model")
                }
            }
            Place::NoModel => {
                tracing::debug!(path = head.path, "no model could be read");
                let body = openai::no_model();
                if guest {
                    self.refused("no_model", &body, None)
                } else {
                    self.immediate(Answer::BadRequest, 400, &body, "no_model")
                }
            }
        }
    }

    /// Hands the request to its pool.
    fn submit(
        &mut self,
        pool: &Arc<Pool>,
        head: &Head,
        directory: Option<&Arc<Directory>>,
    ) -> ProcessingResponse {
        // Read before the request is handed in: a reload in between must not make Envoy give up before the queue does.
        let wait_max = pool.config().borrow().router.queue.wait_max;
        let directory = directory.map(Arc::as_ref);
        let ask = head.ask(directory);
        let about = About::of(head, &ask, directory);
        let (ticket, progress) = pool.submit(&ask);
        match progress {
            Progress::Decided(verdict) => self.decided(ticket, verdict, &about),
            Progress::Waiting(verdict) => {
                self.stage = Stage::Waiting(Waiting {
                    ticket,
                    verdict,
                    about,
                });
                answer::wait(wait_max.saturating_add(WAIT_SLACK))
            }
        }
    }

    /// Waits for the verdict, or for the client to go away.
    async fn wait(&mut self) -> Option<ProcessingResponse> {
        let Stage::Waiting(waiting) = &mut self.stage else {
            return None;
        };
        let verdict = loop {
            tokio::select! {
                // The verdict first: a request that was sent on its way must not be taken for one that still waits.
                biased;
                verdict = &mut waiting.verdict => break verdict,
                message = self.inbound.next(), if self.held_back.is_none() => {
                    // The end of the stream, in either way: dropping the exchange frees the place.
                    self.held_back = Some(message?.ok()?);
                }
            }
        };
        // The pool answers everybody before it goes, so a lost verdict is a pool that is gone.
        let verdict = verdict.unwrap_or(Verdict::Refused {
            reason: RejectReason::ShuttingDown,
            retry_after: Duration::ZERO,
        });
        match std::mem::replace(&mut self.stage, Stage::Settled) {
            Stage::Waiting(waiting) => Some(self.decided(waiting.ticket, verdict, &waiting.about)),
            Stage::Fresh | Stage::Sent(_) | Stage::Settled | Stage::Answered => None,
        }
    }

    /// The response has ended: what the filter says of it goes to the pool, and not to the client.
    fn outcome(&mut self, trailers: Option<&HeaderMap>) -> ProcessingResponse {
        let trailers = trailers.map_or(&[][..], |map| &map.headers);
        let trailer = trailers
            .iter()
            .find(|trailer| trailer.key == names::OUTCOME);
        // Nothing comes behind trailers, and a stream that ends together with the answer to them needs no reset of Envoy's,
        // which would cost both sides another write and another read.
        match std::mem::replace(&mut self.stage, Stage::Answered) {
            Stage::Sent(ticket) => {
                match trailer.map(|trailer| Outcome::parse(head::bytes(trailer))) {
                    Some(Ok(outcome)) => {
                        decision::log_outcome(ticket.pool(), ticket.id(), &outcome);
                        ticket.finished(&outcome);
                    }
                    Some(Err(_)) => {
                        self.context.metrics.bad_header(names::OUTCOME);
                        ticket.ended();
                    }
                    None => ticket.ended(),
                }
            }
            Stage::Fresh | Stage::Waiting(_) | Stage::Settled | Stage::Answered => {}
        }
        answer::response_trailers()
    }
}

impl<I: Inbound> Drop for Exchange<I> {
    fn drop(&mut self) {
        self.context.metrics.streams.dec();
        if let Stage::Waiting(waiting) = &self.stage {
            self.context.metrics.answered(Answer::Gone);
            tracing::debug!(
                pool = %waiting.ticket.pool().name(),
                request = waiting.ticket.id().0,
                "the client went away while it waited"
            );
        }
        // Ends at the stream's end, which is there, or at the first message that is not.
        while let (Stage::Sent(_), Some(Some(Ok(message)))) =
            (&self.stage, self.inbound.next().now_or_never())
        {
            if let Some(Request::ResponseTrailers(trailers)) = message.request {
                self.outcome(trailers.trailers.as_ref());
            }
        }
    }
}

fn full_duplex(config: &ProtocolConfiguration) -> (bool, bool) {
    (
        config.request_body_mode == FULL_DUPLEX,
        config.response_body_mode == FULL_DUPLEX,
    )
}

#[cfg(test)]
mod tests;
