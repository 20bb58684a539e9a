//! One request, from its headers to the end of its response, in nobody's protocol.
//!
//! Whatever ends the talk about a request drops it, and with it the [`InFlightGuard`], which gives the request's place back.

pub(crate) mod describe;
pub(crate) mod head;
pub(crate) mod openai;
pub(crate) mod origin;
pub(crate) mod reply;
mod resolve;
pub(crate) mod target;

use std::sync::Arc;
use std::time::Duration;

use isotherm_fingerprint::names;
use isotherm_fingerprint::outcome::Outcome;
use isotherm_router::RejectReason;
use tokio::sync::oneshot;

use describe::RequestSummary;
use reply::{PassThroughReply, Reply};

use crate::metrics::{Metrics, RequestResult};
use crate::pool::{InFlightGuard, Pool, PoolDecision, PoolRegistry, PoolTable, Submission};

pub(crate) use head::RequestHead;
pub(crate) use origin::Listener;
pub(crate) use target::RouteTarget;

/// What every exchange uses.
#[derive(Debug)]
pub(crate) struct Context {
    pub(super) pool_registry: Arc<PoolRegistry>,
    pub(super) metrics: Arc<Metrics>,
    /// When the service started, in seconds since 1970: models have an age.
    pub(super) started_unix_s: u64,
}

/// How much longer Envoy is told to wait than the queue keeps a request: the queue's own answer comes first.
const WAIT_SLACK: Duration = Duration::from_secs(5);

/// One request.
pub(super) struct RequestLifecycle {
    context: Arc<Context>,
    stage: Stage,
}

/// How far the request is.
enum Stage {
    /// Its headers have not been seen.
    Fresh,
    /// It waits for a replica.
    Waiting(Box<Waiting>),
    /// It was sent to a replica, or to another region.
    Sent(InFlightGuard),
    /// Nothing is expected of it any more.
    Settled,
    /// Nothing more is to be said. Either the client has its response from here, or it has ended.
    Answered,
}

struct Waiting {
    guard: InFlightGuard,
    summary: RequestSummary,
}

/// What becomes of a request when it is asked about.
pub(super) enum Placed {
    /// This, at once.
    Decided(Reply),
    /// It waits.
    Waits {
        /// For how long at the most.
        timeout: Duration,
        /// What [`RequestLifecycle::told`] wants to hear.
        verdict: oneshot::Receiver<PoolDecision>,
    },
}

impl RequestLifecycle {
    /// A request of which nothing is known yet.
    pub(super) fn new(context: Arc<Context>) -> Self {
        context.metrics.ext_proc_streams.inc();
        Self {
            context,
            stage: Stage::Fresh,
        }
    }

    /// What all requests use.
    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Whether its end is waited for.
    pub(super) fn is_sent(&self) -> bool {
        matches!(self.stage, Stage::Sent(_))
    }

    /// Whether nothing more is to be said of it.
    pub(super) fn is_answered(&self) -> bool {
        matches!(self.stage, Stage::Answered)
    }

    /// Its headers say what it is.
    pub(super) fn place(&mut self, head: RequestHead, table: &PoolTable) -> Placed {
        let place = RouteTarget::of(&head, table);
        let guest = head.origin.is_guest(table.peer_table().map(Arc::as_ref));
        tracing::trace!(path = head.path, model = head.model, ?place, "request");
        Placed::Decided(match place {
            RouteTarget::Pool(pool) => return self.submit(&pool, head, table),
            RouteTarget::PassThrough(cluster) => {
                self.stage = Stage::Settled;
                Reply::PassThrough(PassThroughReply::to(cluster, &head.headers))
            }
            RouteTarget::ModelList => {
                let models = openai::models(table.pools().iter(), self.context.started_unix_s);
                self.immediate(RequestResult::Models, 200, models, "models")
            }
            RouteTarget::Model(id) => {
                let model = openai::model(&id, self.context.started_unix_s);
                self.immediate(RequestResult::Models, 200, model, "models")
            }
            RouteTarget::UnknownModel(id) => {
                tracing::debug!(model = id, "no pool serves this model");
                let body = openai::unknown_model(&id);
                if guest {
                    // The region that forwarded it knows its pool: its client must not hear that nobody does.
                    self.refused("unknown_model", body, None)
                } else {
                    self.immediate(RequestResult::NotFound, 404, body, "unknown_model")
                }
            }
            RouteTarget::MissingModel => {
                tracing::debug!(path = head.path, "no model could be read");
                let body = openai::no_model();
                if guest {
                    self.refused("no_model", body, None)
                } else {
                    self.immediate(RequestResult::BadRequest, 400, body, "no_model")
                }
            }
        })
    }

    /// Hands the request to its pool.
    fn submit(&mut self, pool: &Arc<Pool>, head: RequestHead, table: &PoolTable) -> Placed {
        // Read before the request is handed in: a reload in between must not make Envoy give up before the queue does.
        let wait_max = pool.wait_max();
        let peer_table = table.peer_table().map(Arc::as_ref);
        let ask = head.ask(peer_table);
        let summary = RequestSummary::of(head, &ask, peer_table);
        let (guard, progress) = pool.submit(&ask);
        match progress {
            Submission::Decided(verdict) => Placed::Decided(self.decided(guard, verdict, &summary)),
            Submission::Queued(verdict) => {
                self.stage = Stage::Waiting(Box::new(Waiting { guard, summary }));
                Placed::Waits {
                    timeout: wait_max.saturating_add(WAIT_SLACK),
                    verdict,
                }
            }
        }
    }

    /// What it waited for has come; `None` when it did not wait.
    pub(super) fn told(
        &mut self,
        verdict: Result<PoolDecision, oneshot::error::RecvError>,
    ) -> Option<Reply> {
        // The pool answers everybody before it goes, so a lost verdict is a pool that is gone.
        let verdict = verdict.unwrap_or(PoolDecision::Reject {
            reason: RejectReason::ShuttingDown,
            retry_after: Duration::ZERO,
        });
        match std::mem::replace(&mut self.stage, Stage::Settled) {
            Stage::Waiting(waiting) => {
                let Waiting { guard, summary } = *waiting;
                Some(self.decided(guard, verdict, &summary))
            }
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// The response has ended: what the filter says of it goes to the pool.
    pub(super) fn ended(&mut self, outcome: Option<&[u8]>) {
        match std::mem::replace(&mut self.stage, Stage::Answered) {
            Stage::Sent(guard) => match outcome.map(Outcome::parse) {
                Some(Ok(outcome)) => {
                    describe::log_outcome(guard.pool(), guard.id(), &outcome);
                    guard.finish(&outcome);
                }
                Some(Err(_)) => {
                    self.context.metrics.count_bad_header(names::OUTCOME);
                    guard.finish_without_outcome();
                }
                None => guard.finish_without_outcome(),
            },
            Stage::Fresh | Stage::Waiting(_) | Stage::Settled | Stage::Answered => {}
        }
    }
}

impl Drop for RequestLifecycle {
    fn drop(&mut self) {
        self.context.metrics.ext_proc_streams.dec();
        if let Stage::Waiting(waiting) = &self.stage {
            self.context.metrics.count_request(RequestResult::Aborted);
            tracing::debug!(
                pool = %waiting.guard.pool().name(),
                request = waiting.guard.id().0,
                "the client went away while it waited"
            );
        }
    }
}
