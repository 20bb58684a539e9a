//! State of one peer: its last report, and the requests forwarded to it that the report does not count.
//!
//! A report counts as of the moment at which it was *asked for*, by this service's clock (`as_of`). A returned request
//! refutes the report on which it was sent. `docs/design/forwarding.md` describes both, and when the breaker of a peer opens.
//! A request may return to a sibling, so the service counts returns and does not tell them apart.

use core::time::Duration;

use super::pushes::Pushes;
use super::window::ReportWindow;
use crate::constant::constants;
use crate::replica::{Breaker, BreakerPermit, Evidence};
use crate::{PeerAvailability, PeerId, PeerReport, PeerStatus, PromptCost, RegionRules, Time};

constants! {
    /// Lower bound of a queue's drain rate, in requests per second; a peer that has finished no request reports zero.
    DRAIN_PER_S_MIN: f64 = 0.1;
    /// Time beyond a round trip after which a rejected request has returned; the proxy gives up a gateway that does not answer
    /// within this time.
    REJECTION_MAX: Duration = Duration::from_secs(3);
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ForwardEnd {
    /// The peer served the request or failed.
    Ended(Evidence),
    Aborted {
        /// Whether the request had returned from the peer.
        has_returned: bool,
    },
    /// The request returned from the peer and ended elsewhere.
    ServedElsewhere {
        /// Time at which the request was forwarded.
        forwarded_at: Time,
    },
}

#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) id: PeerId,
    pub(super) name: String,
    report: Option<LastReport>,
    is_lost: bool,
    /// Time of the first return that refuted the report.
    refuted_at: Option<Time>,
    returned_at: Option<Time>,
    since_report: SinceReport,
    window: ReportWindow,
    own: OwnRequests,
    breaker: Breaker,
    forwarded: u64,
    returned: u64,
}

/// Requests that were sent to the peer since its report was asked for.
#[derive(Debug, Default)]
struct SinceReport {
    /// Requests of this service and of its siblings.
    sent: Pushes,
    /// Number of requests in `sent`.
    count: u32,
    /// Batch requests of this service.
    batch: Pushes,
    /// Tokens of the requests of this service.
    tokens: Pushes,
}

impl SinceReport {
    fn push(&mut self, now: Time) {
        self.sent.push(now);
        self.count = self.count.saturating_add(1);
    }

    fn forget_before(&mut self, as_of: Time) {
        self.sent.forget_before(as_of);
        self.count = self.sent.since(as_of);
        self.batch.forget_before(as_of);
        self.tokens.forget_before(as_of);
    }
}

/// Requests of this service at the peer.
#[derive(Debug, Default)]
struct OwnRequests {
    /// Requests that the peer may still reject ([`REJECTION_MAX`]).
    sent: Pushes,
    /// Requests of the same time that returned to this service.
    returned: Pushes,
    outstanding: u32,
    /// Outstanding requests that have returned and are served elsewhere.
    outstanding_returned: u32,
}

#[derive(Clone, Copy, Debug)]
struct LastReport {
    report: PeerReport,
    as_of: Time,
    round_trip: Duration,
}

impl Peer {
    pub(super) fn new(id: PeerId, name: String) -> Self {
        Self {
            id,
            name,
            ..Self::default()
        }
    }

    /// Handles a report that was asked for at `as_of`.
    pub(super) fn on_report(
        &mut self,
        report: PeerReport,
        as_of: Time,
        round_trip: Duration,
        now: Time,
    ) {
        if self.report.is_some_and(|last| as_of < last.as_of) {
            return;
        }
        self.window
            .on_report(self.since_report.count, self.refuted_at.is_some());
        self.report = Some(LastReport {
            report,
            as_of,
            round_trip,
        });
        self.is_lost = false;
        if self.refuted_at.is_some_and(|at| as_of > at) {
            self.refuted_at = None;
        }
        self.since_report.forget_before(as_of);
        let rejected_by = self.rejected_by(now);
        self.own.sent.forget_before(rejected_by);
        self.own.returned.forget_before(rejected_by);
        if self.is_holding_requests(now) {
            self.breaker.reset();
        }
    }

    pub(super) const fn on_loss(&mut self) {
        self.is_lost = true;
    }

    /// Handles a request that this service forwards to the peer, which needs memory for so many tokens at most.
    pub(super) fn on_forward(&mut self, tokens: u32, is_batch: bool, now: Time) -> BreakerPermit {
        self.on_send(now);
        self.since_report.tokens.add(now, tokens);
        if is_batch {
            self.since_report.batch.push(now);
        }
        self.own.sent.push(now);
        self.own.outstanding = self.own.outstanding.saturating_add(1);
        self.forwarded += 1;
        self.breaker.sent(now)
    }

    /// Handles a request that this service or a sibling sends to the peer.
    pub(super) fn on_send(&mut self, now: Time) {
        self.since_report.push(now);
    }

    pub(super) fn on_return(&mut self, now: Time) {
        self.returned += 1;
        self.returned_at = Some(now);
        self.own.returned.push(now);
        self.own.outstanding_returned = self.own.outstanding_returned.saturating_add(1);
        self.refute(now);
    }

    /// Handles the end of a request that this service forwarded to the peer.
    pub(super) fn on_end(&mut self, permit: BreakerPermit, end: ForwardEnd, now: Time) {
        self.own.outstanding = self.own.outstanding.saturating_sub(1);
        let (evidence, has_returned) = match end {
            ForwardEnd::Ended(evidence) => (evidence, false),
            ForwardEnd::Aborted { has_returned } => (Evidence::None, has_returned),
            ForwardEnd::ServedElsewhere { forwarded_at } => {
                let has_returned = self.returned_at.is_some_and(|at| at >= forwarded_at);
                (Evidence::None, has_returned)
            }
        };
        self.breaker.on_end(permit, evidence, now);
        if has_returned {
            self.own.outstanding_returned = self.own.outstanding_returned.saturating_sub(1);
        }
        if !matches!(end, ForwardEnd::ServedElsewhere { .. }) {
            self.own.outstanding_returned = self.own.outstanding_returned.min(self.own.outstanding);
        } else if !has_returned {
            // The request returned to a sibling: its end is the first sign of the rejection here.
            self.refute(now);
        }
    }

    /// Whether the last report is recent and has replicas of this pool, available or not.
    pub(super) fn has_replicas(&self, rules: &RegionRules, now: Time) -> bool {
        let has_replicas = |last: LastReport| {
            last.report.replicas > 0 && now < last.as_of.after(rules.stale_after)
        };
        !self.is_lost && self.report.is_some_and(has_replicas)
    }

    pub(super) fn availability(&self, rules: &RegionRules, now: Time) -> PeerAvailability {
        let Some(last) = &self.report else {
            return PeerAvailability::NeverHeard;
        };
        if self.is_lost {
            PeerAvailability::Lost
        } else if now >= last.as_of.after(rules.stale_after) {
            PeerAvailability::Stale
        } else if !self.breaker.admits(now) {
            PeerAvailability::Failing
        } else if self.refuted_at.is_some() {
            PeerAvailability::Refused
        } else if last.report.available == 0 {
            PeerAvailability::NoReplica
        } else if !self.window.admits(self.since_report.count) {
            PeerAvailability::Paced
        } else if self.queue() > rules.queue_max {
            PeerAvailability::LongQueue
        } else {
            PeerAvailability::Available
        }
    }

    /// Handles the rejection of a request, which shows that the report is wrong or outdated.
    fn refute(&mut self, now: Time) {
        if self.refuted_at.is_some() {
            return;
        }
        self.refuted_at = Some(now);
        self.window.shrink(self.since_report.count);
        if !self.is_holding_requests(now) {
            self.breaker.on_return(now);
        }
    }

    /// Whether the peer has accepted a request of this service that is still outstanding.
    fn is_holding_requests(&self, now: Time) -> bool {
        let rejected_by = self.rejected_by(now);
        let sent = self.own.sent.since(rejected_by);
        let undecided = sent.saturating_sub(self.own.returned.since(rejected_by));
        self.own.outstanding > self.own.outstanding_returned.saturating_add(undecided)
    }

    /// The latest time of departure of a request whose rejection is known at `now`.
    fn rejected_by(&self, now: Time) -> Time {
        let round_trip = self.report.map_or(Duration::ZERO, |last| last.round_trip);
        now.before(round_trip.saturating_add(REJECTION_MAX.get()))
    }

    /// The next time at which availability changes without an event.
    #[inline]
    pub(super) fn next_change(&self, rules: &RegionRules, now: Time) -> Option<Time> {
        let report = self.report.as_ref().filter(|_| !self.is_lost);
        let stale = report.map(|last| last.as_of.after(rules.stale_after));
        let changes = [stale, self.breaker.next_trial()].into_iter().flatten();
        changes.filter(|time| *time > now).min()
    }

    /// Round trip plus the time that the peer's queue takes to drain; `None` before the first report.
    pub(super) fn estimated_ttft(&self) -> Option<Duration> {
        let last = self.report?;
        let ahead = self.queue();
        if ahead == 0 {
            return Some(last.round_trip);
        }
        // Of a NaN and the lower bound, the latter is greater.
        let drain = f64::from(last.report.drain_per_s).max(DRAIN_PER_S_MIN.get());
        let wait = Duration::from_secs_f64(f64::from(ahead) / drain);
        Some(last.round_trip.saturating_add(wait))
    }

    /// Cost of a prompt at the peer, as if each of its replicas had got an equal share of the requests sent since the report.
    #[expect(
        clippy::cast_precision_loss,
        reason = "numbers of requests and replicas"
    )]
    pub(super) fn prompt_cost(&self) -> Option<PromptCost> {
        let report = self.report?.report;
        let sent_each = self.since_report.count as f32 / report.replicas.max(1) as f32;
        report.prompt_cost.map(|cost| cost.times(1.0 + sent_each))
    }

    /// Free capacity of the report, less the requests sent since.
    pub(super) fn free_capacity_left(&self) -> u32 {
        let free_capacity = self.report.map_or(0, |last| last.report.free_capacity);
        free_capacity.saturating_sub(self.since_report.count)
    }

    /// Batch requests that the peer would start now: the credit of the report, less the batch requests sent since.
    pub(super) fn batch_credit_left(&self) -> u32 {
        self.report.map_or(0, |last| {
            let sent = self.since_report.batch.since(last.as_of);
            last.report.batch_credit.saturating_sub(sent)
        })
    }

    /// Effective memory utilisation of the peer: the reported one, plus the tokens sent since.
    #[expect(clippy::cast_precision_loss, reason = "a number of tokens")]
    pub(super) fn utilisation(&self) -> Option<f64> {
        let last = self.report?;
        let capacity = last.report.kv_capacity_tokens;
        let reported = f64::from(last.report.utilisation?);
        let sent = f64::from(self.since_report.tokens.since(last.as_of));
        Some(if capacity > 0 {
            reported + sent / capacity as f64
        } else {
            reported
        })
    }

    /// Round trip to the peer, as measured with its last report.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        Some(self.report?.round_trip)
    }

    /// Queue of interactive requests of the report, plus the requests sent since that exceed its free capacity.
    fn queue(&self) -> u32 {
        self.report.map_or(0, |last| {
            let beyond = self
                .since_report
                .count
                .saturating_sub(last.report.free_capacity);
            let waiting = last.report.queue.saturating_sub(last.report.batch_queue);
            waiting.saturating_add(beyond)
        })
    }

    pub(super) fn status(&self, rules: &RegionRules, now: Time, prefix_bytes: u64) -> PeerStatus {
        PeerStatus {
            id: self.id,
            name: self.name.clone(),
            availability: self.availability(rules, now),
            report: self.report.map(|last| last.report),
            as_of: self.report.map(|last| last.as_of),
            round_trip: self.report.map(|last| last.round_trip),
            forwarded_since: self.since_report.count,
            outstanding: self.own.outstanding,
            prefix_bytes,
            forwarded: self.forwarded,
            returned: self.returned,
        }
    }
}
