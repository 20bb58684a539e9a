//! The guard of one request in a pool, queued or in flight.
//!
//! Envoy resets the gRPC stream as soon as the client leaves, and the state of the stream owns the guard. Dropping the
//! guard therefore releases an aborted request, wherever it was.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use isotherm_fingerprint::outcome::Outcome;
use isotherm_router::{End, Event, Load, RejectReason, ReplicaId, RequestId, ServedBy, Tier, Time};

use super::decision::Route;
use super::demand::ExpectedRequest;
use super::request::response_key;
use super::{Endpoint, Pool};
use crate::metrics::RequestTimes;
use crate::recorder::RecordingEntry;

/// Age of a load report when the first byte of its response reaches the filter. The report may miss requests that were
/// pushed within this time, so it counts as that much older.
const REPORT_AGE: Duration = Duration::from_millis(2);

/// Holds a request in its pool until the response has ended.
#[derive(Debug)]
pub struct InFlightGuard {
    pool: Arc<Pool>,
    id: RequestId,
    /// Tier of the request, in a pool with tiers.
    tier: Option<Tier>,
    arrived: Time,
    dispatched: Option<(Time, ReplicaId)>,
    is_forwarded: bool,
    /// The pool has released the request.
    is_closed: bool,
    /// Entry of the request in a running recording.
    entry: Option<Box<RecordingEntry>>,
    /// Expected request, for the sums of demand.
    expected: ExpectedRequest,
    /// Time at which Envoy sent the request away.
    sent: Option<Time>,
}

impl InFlightGuard {
    pub(crate) fn new(
        pool: Arc<Pool>,
        id: RequestId,
        tier: Option<Tier>,
        entry: Option<Box<RecordingEntry>>,
        expected: ExpectedRequest,
    ) -> Self {
        Self {
            arrived: pool.clock().now(),
            pool,
            id,
            tier,
            dispatched: None,
            is_forwarded: false,
            is_closed: false,
            entry,
            expected,
            sent: None,
        }
    }

    /// The pool of the request.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Id of the request in its pool.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// Records that Envoy sends the request along `route`.
    pub fn dispatch(&mut self, route: &Route) {
        let now = self.pool.clock().now();
        self.dispatched = Some((now, route.decision.replica));
        self.sent = Some(now);
        self.expected.matched_tokens = route.decision.matched_tokens;
        self.expected.queued_for = route.decision.queued_for;
        let metrics = self.pool.metrics();
        metrics.observe_wait(self.tier, route.decision.queued_for);
    }

    /// Reports the first token of the response.
    pub fn begin_response(&self) {
        self.pool.request_event(Event::Began(self.id));
    }

    /// Reports that the replica of the request may store the response under this id.
    pub(crate) fn store_response(&self, response_id: &str) {
        self.report_stored(response_id, ServedBy::Unreported);
    }

    fn report_stored(&self, response_id: &str, served_by: ServedBy) {
        let response = response_key(response_id);
        self.pool
            .request_event(Event::Stored(self.id, served_by, response));
    }

    /// The hung replica of the request, if the request is to end without its response; returned once.
    pub(crate) fn take_abandoned(&self) -> Option<Endpoint> {
        self.pool.take_abandoned(self.id)
    }

    /// Records that Envoy sends the request to another region, after its time in the queue.
    pub fn forward(&mut self, queued_for: Duration) {
        self.is_forwarded = true;
        self.sent = Some(self.pool.clock().now());
        self.pool.metrics().observe_wait(self.tier, queued_for);
    }

    /// Closes a rejected request, which the router has released already.
    pub fn reject(mut self, reason: RejectReason) {
        self.is_closed = true;
        if !self.expected.is_foreign && is_for_lack_of_capacity(reason) {
            self.pool.demand().rejected(self.expected.tier);
        }
    }

    /// Releases a request whose response ended without a readable outcome.
    pub fn finish_without_outcome(mut self) {
        self.release(&Outcome::default(), ServedBy::Unreported, End::Answered);
    }

    /// Releases a request whose response ended with `outcome`. The engine's load report in it counts as a probe.
    pub fn finish(mut self, outcome: &Outcome) {
        if let Some(entry) = &mut self.entry {
            entry.finish(outcome);
        }
        let served_by = self.served_by(outcome);
        if let Some(response_id) = &outcome.response_id {
            self.report_stored(response_id, served_by);
        }
        if let ServedBy::Overridden(_) = served_by {
            self.report_override(outcome);
        }
        let end = match outcome {
            outcome if outcome.is_unsent => End::Unsent,
            outcome if outcome.is_broken => self.report_break(outcome),
            outcome if outcome.is_timeout => self.report_timeout(outcome),
            // An engine or a front of it that answers no request, behind a status of success.
            outcome if outcome.is_error && self.expected.has_api => End::Refused,
            outcome => End::of_status(outcome.status),
        };
        self.release(outcome, served_by, end);
        self.observe(outcome, served_by, end);
        if let Some(us) = outcome.ttft_us {
            self.pool.history().first_byte(us);
        }
        self.pool.check_signals();
        if let Some((replica, load, sent)) = self.load_report(served_by, outcome) {
            self.pool.probed(replica, load, sent);
        }
    }

    /// Counts an answer. A forwarded request that came back is counted as the request that it came back as.
    fn observe(&self, outcome: &Outcome, served_by: ServedBy, end: End) {
        let has_returned = self.is_forwarded && served_by != ServedBy::Unreported;
        let Some(sent) = self.sent.filter(|_| end == End::Answered && !has_returned) else {
            return;
        };
        let times = RequestTimes {
            until_dispatch: sent.since(self.arrived),
            total: self.pool.clock().now().since(self.arrived),
        };
        let metrics = self.pool.metrics();
        metrics.observe_answer(self.tier, outcome, times);
    }

    /// Logs that a replica broke on the request.
    fn report_break(&self, outcome: &Outcome) -> End {
        tracing::warn!(
            pool = %self.pool.name(),
            request = self.id.0,
            replica = outcome.upstream,
            status = outcome.status,
            "a replica closed the connection of a request before its response began; a second replica that does puts \
             the prompt into quarantine"
        );
        End::Broke
    }

    /// Logs that a timeout of Envoy ended the request.
    fn report_timeout(&self, outcome: &Outcome) -> End {
        let now = self.pool.clock().now();
        if self.pool.timeout_log().admits(now) {
            let after = self.sent.map(|sent| now.since(sent));
            tracing::warn!(
                pool = %self.pool.name(),
                request = self.id.0,
                replica = outcome.upstream,
                after_ms = after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
                "a timeout of Envoy ended a request before its response: set `timeout` and `per_try_timeout` of the \
                 route longer than the slowest answer. isotherm_timed_out_total counts such requests"
            );
        }
        End::TimedOut
    }

    /// Logs that Envoy sent the request elsewhere than to the selected replica, at the first attempt.
    fn report_override(&self, outcome: &Outcome) {
        if self.pool.override_log().admits(self.pool.clock().now()) {
            tracing::warn!(
                pool = %self.pool.name(),
                request = self.id.0,
                upstream = outcome.upstream,
                cluster = outcome.cluster,
                expected = %self.pool.cluster(),
                "Envoy sent a request elsewhere than to its selected replica: a route in front of Isotherm's, or the \
                 cluster's own balancer, overrides the choice. isotherm_overridden_total counts such requests"
            );
        }
    }

    fn release(&mut self, outcome: &Outcome, served_by: ServedBy, end: End) {
        self.is_closed = true;
        if let Some(sent) = self.sent {
            let duration = self.pool.clock().now().since(sent);
            self.pool
                .demand()
                .finished(&self.expected, duration, outcome);
        }
        self.pool.request_event(Event::Finished {
            id: self.id,
            served_by,
            end,
            ttft_us: outcome.first_token_us(),
            prompt_tokens: outcome.prompt_tokens,
            cached_tokens: outcome.cached_tokens,
            completion_tokens: outcome.completion_tokens,
        });
    }

    /// The replica that served the response. Another region's gateway serves a forwarded request, and only Envoy knows
    /// its address. A forwarded request that came back names this Envoy's own listener, whose address has no port.
    fn served_by(&self, outcome: &Outcome) -> ServedBy {
        let Some(at) = outcome.upstream.as_deref() else {
            return ServedBy::Unreported;
        };
        match (at.parse::<SocketAddr>(), self.is_forwarded) {
            (Ok(_), true) | (Err(_), false) => ServedBy::Unreported,
            (Err(_), true) => ServedBy::UnknownHost,
            (Ok(addr), false) => {
                let replica = self.pool.replica_at(addr);
                match self.is_overridden(replica, outcome) {
                    true => ServedBy::Overridden(replica),
                    false => replica.map_or(ServedBy::UnknownHost, ServedBy::Replica),
                }
            }
        }
    }

    /// Whether Envoy sent the request elsewhere at its first attempt: to a host of another cluster, or to no replica. A fallback
    /// in the pool's own cluster stands for a selected replica that Envoy has ejected.
    fn is_overridden(&self, replica: Option<ReplicaId>, outcome: &Outcome) -> bool {
        let selected = self.dispatched.map(|(_, selected)| selected);
        let cluster = outcome.cluster.as_deref();
        let is_of_pool =
            || cluster.is_none_or(|name| self.pool.cluster_unless(Some(name)).is_none());
        outcome.attempts == Some(1) && replica != selected && (replica.is_none() || !is_of_pool())
    }

    /// The load report of the outcome, with the replica and the time that it holds for. The report is as old as the first
    /// byte of the response; without that time its age is unknown, and the report is ignored.
    fn load_report(
        &self,
        served_by: ServedBy,
        outcome: &Outcome,
    ) -> Option<(ReplicaId, Load, Time)> {
        let (report, (sent, chosen)) = (outcome.load?, self.dispatched?);
        let replica = match served_by {
            ServedBy::Unreported => chosen,
            ServedBy::Replica(replica) | ServedBy::Overridden(Some(replica)) => replica,
            ServedBy::UnknownHost | ServedBy::Overridden(None) => return None,
        };
        let age = Duration::from_micros(outcome.ttft_us?).saturating_sub(REPORT_AGE);
        let load = Load {
            pending: report.waiting,
            running: report.running,
            kv_usage: report.kv_usage,
            kv_capacity_tokens: None,
        };
        Some((replica, load, sent.after(age)))
    }
}

/// Whether more replicas would have served a rejected request.
const fn is_for_lack_of_capacity(reason: RejectReason) -> bool {
    matches!(
        reason,
        RejectReason::QueueFull | RejectReason::WaitedTooLong | RejectReason::NoReplica
    )
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        if !self.is_closed {
            if let Some(sent) = self.sent {
                let duration = self.pool.clock().now().since(sent);
                self.pool.demand().aborted(&self.expected, duration);
            }
            self.pool.request_event(Event::Aborted(self.id));
        }
    }
}
