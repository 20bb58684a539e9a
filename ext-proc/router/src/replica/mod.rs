//! State of one replica: its last probe, its health, the requests dispatched to it.

mod availability;
mod backlog;
mod breaker;
mod counter_history;
mod counter_sums;
mod latency;
mod latency_model;
mod least_squares;
mod log_ratio;
mod mean_work;
mod memory_use;
mod other_requests;
mod pushes;
mod recent_ends;
mod replicas;
mod signal_log;
mod since_probe;
mod standing_page;
mod unbegun;
mod vital_signs;

use core::time::Duration;

pub(crate) use availability::AvailabilityRules;
use backlog::Backlog;
pub(crate) use backlog::{BacklogClaim, ComputedShare, PushedPrompt};
pub(crate) use breaker::{Breaker, BreakerPermit, Evidence};
pub(crate) use counter_history::CounterEvent;
use counter_history::CounterHistory;
pub(crate) use counter_sums::{CounterSums, ServedPrompt};
pub(crate) use latency::{AnswerMeasurement, PromptMeasurement, RequestMeasurement};
use latency::{PoolLatency, ReplicaLatency};
use latency_model::{LatencyModel, SpeedRatios};
use mean_work::MeanWork;
use other_requests::OtherRequests;
pub(crate) use pushes::Pushes;
use recent_ends::RecentEnds;
pub use replicas::Rank;
pub(crate) use replicas::Replicas;
use signal_log::{SignalLog, SourceLog};
use since_probe::SentSinceProbe;
use standing_page::StandingPage;
use unbegun::UnbegunRequests;
pub(crate) use vital_signs::HANG_TIMEOUT_FACTOR;
use vital_signs::VitalSigns;

use crate::constant::constants;
use crate::{Load, ReplicaId, ReplicaStatus, Role, Source, Time};

constants! {
    /// Streamed answers in a row, to requests for streams, after which a prompt without a response may be stuck: an engine may answer such a
    /// request as a whole, and then has no response while it writes.
    STREAMS_MIN: u8 = 64;
}

/// Predicted hits in a row that did not happen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FalseHits {
    pub(crate) in_a_row: u32,
    /// Tick of the first one's dispatch.
    pub(crate) first: u64,
    /// Whether a response or a probe failed since the last hit that happened: the process may have ended.
    pub(crate) has_failed: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Replica {
    /// Identity, never reused.
    pub(crate) id: ReplicaId,
    /// Stable name: the address.
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Requests dispatched and not finished; of a prefill replica, prompts.
    pub(crate) outstanding: u32,
    /// Sequence number of the last dispatch to the replica; the lowest one wins ties.
    pub(crate) turn: u64,
    /// Whether the replica gets no new requests.
    pub(crate) draining: bool,
    false_hits: FalseHits,
    since_probe: SentSinceProbe,
    /// Requests of other services at the replica.
    others: OtherRequests,
    /// Tokens of the requests sent since the last probe.
    sent_tokens: Pushes,
    unbegun: UnbegunRequests,
    breaker: Breaker,
    backlog: Backlog,
    speed: ReplicaLatency,
    /// Sources of the replica's prefill line and of its decode line.
    prompt_sources: SourceLog,
    output_sources: SourceLog,
    signs: VitalSigns,
    page: StandingPage,
    ends: RecentEnds,
    counters: CounterHistory,
    /// Sums of the engine's counters, if it reports any. On the heap, since few operations read them.
    counted: Option<Box<CounterSums>>,
    /// Share by which predicted cache hits are discounted, since the engine's counters do not show them.
    hit_discount: f64,
    /// The APIs of which an answer of the replica ever named its cached tokens, a bit each.
    names_cached_tokens: u8,
    /// The last good probe and its send time.
    probe: Option<(Load, Time)>,
    /// Requests that the engine ran when a probe last showed waiting ones, until one shows more of them and none waiting.
    full_at: Option<u32>,
    /// Send time of the last probe, if the replica answered it without metrics. Its outstanding requests then decide.
    without_metrics: Option<Time>,
    /// Stuck prompts at the last probe without metrics, less the responses that have begun since.
    stuck: u32,
    /// Whether a probe after the last good one failed.
    failed: bool,
    /// Free capacity when the replica was last listed as available.
    listed_capacity: u32,
    /// Time at which the availability changes without an event.
    timer: Option<Time>,
}

impl Replica {
    pub(crate) fn new(id: ReplicaId, name: String, role: Role) -> Self {
        Self {
            id,
            name,
            role,
            ..Self::default()
        }
    }

    /// Load of the last good probe, if it had one.
    pub(crate) fn load(&self) -> Option<&Load> {
        let probe = self.probe.as_ref().filter(|_| self.has_metrics());
        probe.map(|(load, _)| load)
    }

    /// Whether the last good probe showed a load, or there was none.
    const fn has_metrics(&self) -> bool {
        self.without_metrics.is_none()
    }

    /// Send time of the last good probe.
    fn last_probed(&self) -> Option<Time> {
        let with_load = self.probe.map(|(_, sent)| sent);
        with_load.max(self.without_metrics)
    }

    /// Handles a probe that was answered without metrics.
    pub(crate) fn answered_without_metrics(&mut self, sent: Time, service: Duration, now: Time) {
        if self.last_probed().is_none_or(|last| sent >= last) {
            self.without_metrics = Some(sent);
            self.failed = false;
            self.others.probed_without_metrics(service, now);
            self.since_probe.on_probe(sent);
            self.backlog.keep_of_siblings(self.others.count());
            self.backlog.limit(sent, self.token_s());
            // Stuck prompts stand for the pending requests that a metrics page would show.
            self.stuck = match self.unbegun.streams() >= STREAMS_MIN.get() {
                true => self.backlog.stuck(now),
                false => 0,
            };
            self.backlog.on_probe(self.stuck, sent, self.token_s());
        }
    }

    /// The load that is believed of a page.
    fn believed(&mut self, load: Load, sent: Time, service: Duration) -> Load {
        let is_explained = self.outstanding > 0
            || self.others.has_shared_since(sent.before(service))
            || self.signs.has_sign_since(self.page.since());
        if self.page.stands_still(&load, sent, is_explained) {
            self.full_at = Some(0);
            return StandingPage::believed(load);
        }
        // An engine that runs none is not full: the page stood still, or the engine was about to begin.
        let is_below = |full_at: &u32| *full_at > 0 && load.running.is_some_and(|n| n <= *full_at);
        self.full_at = match load.pending {
            0 => self.full_at.filter(is_below),
            _ => load.running,
        };
        load
    }

    /// Registers the pending requests that a probe shows, before the probe is applied.
    fn on_pending(&mut self, pending: u32, sent: Time) {
        let since = self.since_probe.own_since(sent);
        let is_ours = !self.since_probe.may_show_siblings(sent);
        self.unbegun.on_probe(pending, sent, since, is_ours);
    }

    /// Registers that the response to a request begins. The replica admits requests without waiting for the next probe.
    pub(crate) fn on_begin(&mut self, claim: &BacklogClaim, permit: BreakerPermit, now: Time) {
        self.breaker.on_begin(permit);
        self.signs.responded(now.since(claim.at), now);
        self.left_the_queue(claim);
        self.stuck = self.stuck.saturating_sub(1);
        self.backlog.on_begin(claim, self.token_s(), now);
    }

    /// Requests at the replica: those of this service that have not finished, and those of others, by estimate.
    pub(crate) const fn requests(&self) -> u32 {
        self.outstanding.saturating_add(self.others.count())
    }

    /// Registers the end of a request. `computed` says what became of its prompt if the response had not begun.
    fn end_prompt(&mut self, claim: &BacklogClaim, computed: Option<ComputedShare>, now: Time) {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.others.own_ended();
        if let Some(computed) = computed {
            self.left_the_queue(claim);
            self.backlog.on_end(claim, computed, self.token_s(), now);
        }
        if self.is_idle() {
            self.stuck = 0;
            self.backlog.emptied();
        }
    }

    /// Time to compute a prompt token, in seconds.
    const fn token_s(&self) -> f64 {
        self.speed.model.prefill.each_s
    }

    /// Lets the model of the replica's speed age towards the pool's.
    fn age(&mut self, pool: LatencyModel, now: Time) {
        let is_measured = self.prompt_sources.is_recent(Source::Usage, now);
        let counted = self.counted.as_deref().filter(|_| !is_measured);
        self.speed.age(pool, counted, now);
    }

    /// Registers that a request of this service waits in the engine no longer. When all those have begun that the last probe may have
    /// shown as pending, none is pending.
    fn left_the_queue(&mut self, claim: &BacklogClaim) {
        self.since_probe.on_begin(claim.at);
        if self.unbegun.begun(claim)
            && let Some((load, _)) = &mut self.probe
        {
            load.pending = 0;
        }
    }

    /// Whether the replica has no requests, as far as is known.
    fn is_idle(&self) -> bool {
        self.requests() == 0 && !self.since_probe.has_siblings()
    }

    /// Status for the admin interface.
    pub(crate) fn status(&self, rules: &AvailabilityRules, now: Time) -> ReplicaStatus {
        ReplicaStatus {
            id: self.id,
            name: self.name.clone(),
            role: self.role,
            outstanding: self.outstanding,
            of_others: self.others.count(),
            load: self.load().copied(),
            probed: self.last_probed(),
            has_metrics: self.has_metrics(),
            has_several_processes: self.counters.has_several(now),
            headroom: self.headroom(rules, now),
            prefix_bytes: 0,
            availability: self.availability(rules, now),
            draining: self.draining,
            adapters: None,
        }
    }
}

/// Silence of a replica that has requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    /// Time without a sign of life, as far as observed.
    pub(crate) lasts: Duration,
    /// Whether a healthy replica would have shown a sign while it writes answers.
    pub(crate) is_certain: bool,
    /// Whether the engine claims to run requests, and its counters stand still.
    pub(crate) are_counters_frozen: bool,
}
