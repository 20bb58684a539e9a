//! State of one replica: its last probe, its health, the requests dispatched to it.

mod backlog;
mod breaker;
mod capacity;
mod counter_history;
mod counter_sums;
pub(crate) mod latency;
mod latency_model;
mod least_squares;
mod ledger;
mod log_ratio;
mod mean_work;
mod memory_use;
mod other_requests;
mod probed;
mod recent_ends;
mod replicas;
mod signal_log;
mod standing_page;
mod vital_signs;

use core::time::Duration;

use backlog::Backlog;
pub(crate) use backlog::ComputedShare;
pub(crate) use breaker::{Breaker, BreakerPermit, Evidence};
use capacity::{Capacity, CapacityRules};
pub(crate) use counter_history::CounterEvent;
use counter_history::CounterHistory;
pub(crate) use counter_sums::{CounterSums, ServedPrompt};
use latency::ReplicaLatency;
use least_squares::LinearModel;
use ledger::{Ledger, Row};
pub(crate) use ledger::{PushedPrompt, RowId};
use mean_work::MeanWork;
use other_requests::OtherRequests;
use recent_ends::RecentEnds;
pub use replicas::Rank;
pub(crate) use replicas::{Replicas, Silence};
use signal_log::{SignalLog, SourceLog};
use standing_page::StandingPage;
pub(crate) use vital_signs::HANG_TIMEOUT_FACTOR;
use vital_signs::VitalSigns;

use crate::constant::constants;
use crate::{Load, Push, ReplicaId, ReplicaStatus, Role, Source, Time};

constants! {
    /// Streamed answers in a row, to requests for streams, after which a prompt without a response may be stuck: an engine may answer such a
    /// request as a whole, and then has no response while it writes.
    STREAMS_MIN: u32 = 64;
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
    /// Whether the replica gets no new requests.
    pub(crate) draining: bool,
    /// Sequence number of the last dispatch to the replica; the lowest one wins ties.
    turn: u64,
    listed: SetEntry,
    pub(crate) probe: ProbeState,
    ledger: Ledger,
    /// Requests of other services at the replica.
    others: OtherRequests,
    pub(crate) breaker: Breaker,
    pub(crate) signs: VitalSigns,
    ends: RecentEnds,
    work: ReplicaWork,
    pub(crate) counts: TokenCounts,
}

/// Place of a replica in the sets of its pool.
#[derive(Clone, Copy, Debug, Default)]
struct SetEntry {
    /// Free capacity when the replica was last listed as available.
    capacity: u32,
    /// Time at which the availability changes without an event.
    timer: Option<Time>,
}

/// State of a replica by its last probe.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProbeState {
    /// Send time of the last good probe.
    sent: Option<Time>,
    /// The last load that a probe showed.
    shown: Option<Load>,
    /// Whether the replica answered the last good probe without metrics. Its outstanding requests then decide.
    is_without_metrics: bool,
    /// Whether a probe after the last good one failed.
    pub(crate) has_failed: bool,
    /// Requests that the engine ran when a probe last showed waiting ones, until one shows more of them and none waiting.
    full_at: Option<u32>,
    /// Stuck prompts at the last probe without metrics, less the responses that have begun since.
    stuck: u32,
    page: StandingPage,
}

/// Speed of a replica, and the work that waits in it.
#[derive(Clone, Debug, Default)]
struct ReplicaWork {
    speed: ReplicaLatency,
    /// Sources of the replica's prefill line.
    sources: SourceLog,
    backlog: Backlog,
    /// Streamed answers in a row, to requests that asked for a stream.
    streams: u32,
}

/// Tokens that the engine of a replica counts, beside the predicted ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenCounts {
    history: CounterHistory,
    /// Sums of the engine's counters, if it reports any. On the heap, since few operations read them.
    sums: Option<Box<CounterSums>>,
    /// Share by which predicted cache hits are discounted, since the engine's counters do not show them.
    hit_discount: f64,
    /// The APIs of which an answer of the replica ever named its cached tokens, a bit each.
    names_cached_tokens: u8,
    pub(crate) false_hits: FalseHits,
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

    /// Load of the last good probe, if it showed one.
    pub(crate) fn load(&self) -> Option<&Load> {
        self.probe
            .shown
            .as_ref()
            .filter(|_| !self.probe.is_without_metrics)
    }

    /// Requests of this service that have not finished; of a prefill replica, prompts.
    pub(crate) const fn outstanding(&self) -> u32 {
        self.ledger.outstanding()
    }

    /// Requests at the replica: those of this service that have not finished, and those of others, by estimate.
    pub(crate) const fn requests(&self) -> u32 {
        self.outstanding().saturating_add(self.others.count())
    }

    /// Registers a dispatched request.
    fn on_push(&mut self, prompt: PushedPrompt, now: Time) -> (BreakerPermit, RowId) {
        let ready = self
            .work
            .backlog
            .on_push(prompt.tokens, self.token_s(), now);
        let row = self.ledger.push(prompt, ready, now);
        (self.breaker.sent(now), row)
    }

    /// Registers a request that a sibling dispatched, which occupies the replica for about `service`.
    fn on_sibling_push(&mut self, prompt: PushedPrompt, service: Duration, now: Time) {
        let ready = self
            .work
            .backlog
            .on_push(prompt.tokens, self.token_s(), now);
        self.ledger.push_sibling(prompt, ready, now);
        self.others.on_push(service, now);
    }

    /// Registers that the response to a request begins. The replica admits requests without waiting for the next probe.
    fn on_begin(&mut self, row: RowId, permit: BreakerPermit, now: Time) {
        self.breaker.on_begin(permit);
        let Some(begun) = self.ledger.begin(row) else {
            return;
        };
        self.signs.responded(now.since(begun.sent_at), now);
        self.admit_pending();
        self.probe.stuck = self.probe.stuck.saturating_sub(1);
        self.work.backlog.limit(&self.ledger, now, self.token_s());
    }

    /// Registers the end of a request, and returns its row. `computed` says what became of its prompt if the response had not begun.
    pub(crate) fn on_end(&mut self, row: RowId, computed: ComputedShare, now: Time) -> Option<Row> {
        let ended = self.ledger.end(row)?;
        self.others.own_ended();
        if !ended.has_begun {
            self.admit_pending();
            self.work
                .backlog
                .on_end(&ended, computed, self.token_s(), now);
        }
        if self.requests() == 0 && !self.ledger.has_unprobed_siblings() {
            self.probe.stuck = 0;
            self.work.backlog = Backlog::default();
            self.ledger.empty();
        }
        Some(ended)
    }

    /// Registers the answer to a request that asked for a stream. An engine, or a proxy before it, may answer as a whole all the same.
    const fn on_answer(&mut self, is_streamed: bool) {
        self.work.streams = match is_streamed {
            true => self.work.streams.saturating_add(1),
            false => 0,
        };
    }

    /// Takes the last probe's pending requests for admitted, once all those have begun that it may have shown.
    const fn admit_pending(&mut self) {
        if self.ledger.has_admitted_pending()
            && let Some(load) = &mut self.probe.shown
        {
            load.pending = 0;
        }
    }

    /// Registers that the process of the replica is a new one: it has nothing queued, and its speed is not known yet.
    fn on_restart(&mut self, pool: LinearModel, now: Time) {
        self.ledger.restart(now);
        self.work.backlog = Backlog::default();
        self.others = OtherRequests::default();
        self.work.speed = ReplicaLatency::new(pool);
        self.work.sources = SourceLog::default();
        self.counts.sums = None;
        self.counts.hit_discount = 0.0;
        self.counts.false_hits = FalseHits::default();
    }

    /// Time to compute a prompt token, in seconds.
    const fn token_s(&self) -> f64 {
        self.work.speed.prefill.each_s
    }

    /// Computes the replica's prefill line anew: it ages towards the pool's.
    fn age(&mut self, pool: LinearModel, now: Time) {
        let is_measured = self.work.sources.is_recent(Source::Usage, now);
        let counted = self.counts.sums.as_deref().filter(|_| !is_measured);
        self.work.speed.age(pool, counted, now);
    }

    /// Status for the admin interface.
    fn status(&self, rules: &CapacityRules, now: Time) -> ReplicaStatus {
        let capacity = self.capacity(rules, now);
        let is_bounded = self.role.has_requests() && rules.push != Push::Blind;
        ReplicaStatus {
            id: self.id,
            name: self.name.clone(),
            role: self.role,
            outstanding: self.outstanding(),
            of_others: self.others.count(),
            load: self.load().copied(),
            probed: self.probe.sent,
            has_metrics: !self.probe.is_without_metrics,
            has_several_processes: self.counts.history.has_several(now),
            headroom: is_bounded.then(|| capacity.free()),
            prefix_bytes: 0,
            availability: capacity.availability(),
            draining: self.draining,
            adapters: None,
        }
    }
}
