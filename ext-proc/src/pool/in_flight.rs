//! The place of one request in a pool: waiting, or in flight.
//!
//! Envoy drops the gRPC stream the moment that the client goes away, and the stream's state owns the ticket. So
//! giving the place back when the ticket is dropped is all the bookkeeping of aborted requests, wherever they were.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use isotherm_fingerprint::outcome::Outcome;
use isotherm_router::{End, Event, Load, ReplicaId, RequestId, Served, Time};
use tokio::sync::oneshot;

use super::Pool;
use super::state::{PoolDecision, Route};
use crate::recorder::recorder::RecordingEntry;

/// An engine writes its load report a little before the first byte reaches the filter. What was pushed within this
/// time may be missing from the report, so the report counts as that much older.
const REPORT_AGE: Duration = Duration::from_millis(2);

/// The state of a request right after its submission to a pool.
#[derive(Debug)]
pub enum Submission {
    /// The pool decided at once.
    Decided(PoolDecision),
    /// The request is queued; the receiver yields the decision.
    Queued(oneshot::Receiver<PoolDecision>),
}

/// See the module's documentation.
#[derive(Debug)]
pub struct InFlightGuard {
    pool: Arc<Pool>,
    id: RequestId,
    sent: Option<(Time, ReplicaId)>,
    /// It went to another region.
    forwarded: bool,
    /// Nothing more is to be told of this request.
    closed: bool,
    /// What a recording gets of it, when it ends in whatever way.
    recorded: Option<Box<RecordingEntry>>,
}

impl InFlightGuard {
    pub(crate) fn new(
        pool: Arc<Pool>,
        id: RequestId,
        recorded: Option<Box<RecordingEntry>>,
    ) -> Self {
        Self {
            pool,
            id,
            sent: None,
            forwarded: false,
            closed: false,
            recorded,
        }
    }

    /// The pool that it is in.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The request's number in its pool.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// The request goes where `route` says.
    pub fn sent(&mut self, route: &Route) {
        self.sent = Some((self.pool.clock().now(), route.decision.replica));
    }

    /// The request goes to another region.
    pub fn forwarded(&mut self) {
        self.forwarded = true;
    }

    /// The request was refused: the core has forgotten it already.
    pub fn refused(mut self) {
        self.closed = true;
    }

    /// The response ended, and nobody said how.
    pub fn ended(mut self) {
        self.closed = true;
        self.pool.request_event(Event::Finished {
            id: self.id,
            served: Served::Unsaid,
            end: End::Answered,
            ttft_us: None,
            prompt_tokens: None,
            cached_tokens: None,
            completion_tokens: None,
        });
    }

    /// The response ended as `outcome` says. An engine's load report in it counts as a probe.
    pub fn finished(mut self, outcome: &Outcome) {
        self.closed = true;
        if let Some(recorded) = &mut self.recorded {
            recorded.finished(outcome);
        }
        let served = self.served(outcome);
        self.pool.request_event(Event::Finished {
            id: self.id,
            served,
            end: End::of_status(outcome.status),
            ttft_us: outcome.first_token_us(),
            prompt_tokens: outcome.prompt_tokens,
            cached_tokens: outcome.cached_tokens,
            completion_tokens: outcome.completion_tokens,
        });
        self.pool.observe(outcome);
        self.report(served, outcome);
    }

    /// Who served. What was forwarded is served by a gateway, whose address only Envoy knows; unless it came back, and
    /// then the address is that of this Envoy's own listener for such requests, which has no port.
    fn served(&self, outcome: &Outcome) -> Served {
        let Some(at) = outcome.served.as_deref() else {
            return Served::Unsaid;
        };
        match (at.parse::<SocketAddr>(), self.forwarded) {
            (Ok(_), true) | (Err(_), false) => Served::Unsaid,
            (Err(_), true) => Served::Stranger,
            (Ok(addr), false) => self
                .pool
                .replica_at(addr)
                .map_or(Served::Stranger, Served::By),
        }
    }

    /// Feeds the load report, which is as old as the response's first byte. Where that is unknown the report
    /// could be of any age, and says nothing.
    fn report(&self, served: Served, outcome: &Outcome) {
        let (Some(report), Some((sent, chosen)), Some(ttft_us)) =
            (outcome.load, self.sent, outcome.ttft_us)
        else {
            return;
        };
        let served = match served {
            Served::Unsaid => chosen,
            Served::By(replica) => replica,
            Served::Stranger => return,
        };
        let age = Duration::from_micros(ttft_us).saturating_sub(REPORT_AGE);
        let load = Load {
            pending: report.waiting,
            running: report.running,
            kv_usage: report.kv_usage,
            kv_capacity_tokens: None,
        };
        self.pool.probed(served, load, sent.after(age));
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        if !self.closed {
            self.pool.request_event(Event::Aborted { id: self.id });
        }
    }
}
