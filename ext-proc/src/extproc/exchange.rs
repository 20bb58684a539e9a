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

use super::answer::Immediate;
use super::decision::About;
use super::head::{self, Head};
use super::place::Place;
use super::{Context, Listener, answer, decision, openai};
use crate::driver::{ANY_MODEL, Directory, Forward, Pool, Progress, Route, Ticket, Verdict};
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
    /// The client has its answer from here: the stream ends.
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
        tracing::trace!(path = head.path, model = head.model, ?place, "request");
        match place {
            Place::Route(pool) => self.submit(&pool, head, table.directory()),
            Place::Pass(cluster) => {
                self.stage = Stage::Settled;
                self.context.metrics.answered(Answer::Passed);
                answer::passed(cluster.as_deref())
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
                if head.origin.is_guest(table.directory().map(Arc::as_ref)) {
                    // The region that forwarded it knows the model, and so its client must not hear that nobody does.
                    return self.refused("unknown_model", &body, None);
                }
                self.immediate(Answer::NotFound, 404, &body, "unknown_model")
            }
            Place::NoModel => {
                tracing::debug!(path = head.path, "no model could be read");
                self.immediate(Answer::BadRequest, 400, &openai::no_model(), "no_model")
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

    fn decided(&mut self, ticket: Ticket, verdict: Verdict, about: &About) -> ProcessingResponse {
        match verdict {
            Verdict::Go(route) => self.go(ticket, &route, about),
            Verdict::Forward(forward) => self.forward(ticket, &forward, about),
            Verdict::Refused {
                reason,
                retry_after,
            } => self.refuse(ticket, reason, retry_after, about),
        }
    }

    fn go(&mut self, mut ticket: Ticket, route: &Route, about: &About) -> ProcessingResponse {
        ticket.sent(route);
        let pool = ticket.pool();
        decision::log(pool, ticket.id(), route, about);
        let described = self
            .describes()
            .then(|| decision::header(pool, route, about));
        let message = answer::routed(route, &pool.cluster(), described);
        self.stage = Stage::Sent(ticket);
        self.context.metrics.answered(Answer::Routed);
        message
    }

    fn forward(
        &mut self,
        mut ticket: Ticket,
        forward: &Forward,
        about: &About,
    ) -> ProcessingResponse {
        ticket.forwarded();
        let pool = ticket.pool();
        decision::log_forward(pool, ticket.id(), forward, about);
        let described = self
            .describes()
            .then(|| decision::forward_header(pool, forward, about));
        // The other region need not know the alias under which this one was asked, nor what makes a request this pool's
        // that names no model.
        let model = Some(&**pool.name()).filter(|model| *model != ANY_MODEL);
        let message = answer::forwarded(forward, &about.tried, model, described);
        self.stage = Stage::Sent(ticket);
        self.context.metrics.answered(Answer::Forwarded);
        message
    }

    /// Whether clients are told why their request went where it went.
    fn describes(&self) -> bool {
        self.context.fleet.table().decision_header()
    }

    fn refuse(
        &mut self,
        ticket: Ticket,
        reason: RejectReason,
        retry_after: Duration,
        about: &About,
    ) -> ProcessingResponse {
        let pool = Arc::clone(ticket.pool());
        tracing::debug!(
            pool = %pool.name(),
            request = ticket.id().0,
            reason = reason.as_str(),
            origin = about.guest_of,
            "refused"
        );
        ticket.refused();
        if reason == RejectReason::ShuttingDown && about.guest_of.is_none() {
            // A service that stops must not fail what Envoy can place without it. A guest is better placed at home.
            self.stage = Stage::Settled;
            self.context.metrics.answered(Answer::Passed);
            return answer::passed(Some(&pool.cluster()));
        }
        let body = openai::rejected(reason);
        if about.guest_of.is_some() {
            return self.refused(reason.as_str(), &body, Some(retry_after));
        }
        self.answer_with(
            Answer::Rejected,
            Immediate {
                status: 503,
                body: &body,
                retry_after: Some(retry_after),
                refused: None,
                details: reason.as_str(),
            },
        )
    }

    /// Sends a guest back: the region that it came from decides anew.
    fn refused(
        &mut self,
        why: &str,
        body: &serde_json::Value,
        retry_after: Option<Duration>,
    ) -> ProcessingResponse {
        self.answer_with(
            Answer::Rejected,
            Immediate {
                status: 503,
                body,
                retry_after,
                refused: Some(why),
                details: why,
            },
        )
    }

    fn immediate(
        &mut self,
        kind: Answer,
        status: u16,
        body: &serde_json::Value,
        details: &str,
    ) -> ProcessingResponse {
        self.answer_with(
            kind,
            Immediate {
                status,
                body,
                retry_after: None,
                refused: None,
                details,
            },
        )
    }

    fn answer_with(&mut self, kind: Answer, immediate: Immediate<'_>) -> ProcessingResponse {
        self.stage = Stage::Answered;
        self.context.metrics.answered(kind);
        answer::immediate(immediate)
    }

    /// The response has ended: what the filter says of it goes to the pool, and not to the client.
    fn outcome(&mut self, trailers: Option<&HeaderMap>) -> ProcessingResponse {
        let trailers = trailers.map_or(&[][..], |map| &map.headers);
        let trailer = trailers
            .iter()
            .find(|trailer| trailer.key == names::OUTCOME);
        match std::mem::replace(&mut self.stage, Stage::Settled) {
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
            before => self.stage = before,
        }
        answer::response_trailers(trailer.is_some())
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
mod tests {
    use futures_util::stream::BoxStream;
    use isotherm_router::Load;
    use prometheus_client::registry::Registry;
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::UnboundedReceiverStream;

    use envoy_types::pb::envoy::config::core::v3::HeaderValue;
    use envoy_types::pb::envoy::service::ext_proc::v3::{HttpHeaders, HttpTrailers};

    use super::*;
    use crate::config;
    use crate::driver::{Clock, Fleet};
    use crate::metrics::Metrics;

    type Answers = BoxStream<'static, Result<ProcessingResponse, Status>>;

    /// A request that was sent to the only replica, and how Envoy goes on about it.
    async fn sent() -> (Arc<Pool>, mpsc::UnboundedSender<ProcessingRequest>, Answers) {
        let config = config::parse("pools: [{ model: m }]").unwrap();
        let metrics = Arc::new(Metrics::register(&mut Registry::default()));
        let fleet = Fleet::new(&config, Arc::clone(&metrics), Clock::start());
        let pool = fleet.pool_for("m").unwrap();
        let replica = pool.add_replica(([127, 0, 0, 1], 1).into()).unwrap();
        pool.probed(replica, Load::default(), pool.clock().now());
        let context = Arc::new(Context {
            fleet: Arc::new(fleet),
            metrics,
            started_unix_s: 0,
        });
        let (envoy, messages) = mpsc::unbounded_channel();
        let inbound = UnboundedReceiverStream::new(messages).map(Ok);
        let mut answers = Exchange::answers(context, Listener::Clients, inbound).boxed();
        let headers = Request::RequestHeaders(HttpHeaders::default());
        envoy.send(message(headers)).unwrap();
        answers.next().await.unwrap().unwrap();
        assert_eq!(pool.stats().in_flight, 1);
        (pool, envoy, answers)
    }

    fn message(request: Request) -> ProcessingRequest {
        ProcessingRequest {
            request: Some(request),
            ..ProcessingRequest::default()
        }
    }

    fn trailers(value: &str) -> ProcessingRequest {
        let outcome = HeaderValue {
            key: names::OUTCOME.into(),
            raw_value: value.into(),
            ..HeaderValue::default()
        };
        message(Request::ResponseTrailers(HttpTrailers {
            trailers: Some(HeaderMap {
                headers: vec![outcome],
            }),
        }))
    }

    #[tokio::test]
    async fn an_outcome_that_came_right_before_the_reset_counts() {
        let (pool, envoy, answers) = sent().await;
        envoy.send(trailers("v=1;status=200")).unwrap();
        drop(answers);
        let counters = pool.stats().counters;
        assert_eq!((counters.finished_ok, counters.aborted_in_flight), (1, 0));
    }

    #[tokio::test]
    async fn a_stream_that_ends_without_an_outcome_is_an_abort_however_it_ends() {
        let (pool, _envoy, answers) = sent().await;
        drop(answers);
        assert_eq!(pool.stats().counters.aborted_in_flight, 1);

        let (pool, envoy, mut answers) = sent().await;
        drop(envoy);
        assert!(answers.next().await.is_none());
        drop(answers);
        assert_eq!(pool.stats().counters.aborted_in_flight, 1);
    }

    #[tokio::test]
    async fn an_outcome_that_cannot_be_read_is_the_end_of_a_response_all_the_same() {
        let (pool, envoy, mut answers) = sent().await;
        envoy.send(trailers("?")).unwrap();
        assert!(answers.next().await.is_some());
        drop(answers);
        assert_eq!(pool.stats().counters.finished_ok, 1);
    }
}
