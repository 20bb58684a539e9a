//! Feedback: what the end of a request changes. [`super::learning`] has what it teaches.

use core::time::Duration;

use isotherm_fingerprint::{Api, Fingerprint};

use super::Router;
use super::plausibility::{Plausibility, can_write};
use crate::pool_state::InFlightRequest;
use crate::replica::{ComputedShare, Evidence};
use crate::{End, ReplicaId, RequestId, ServedBy};

/// Tokens and times of a response, as far as it reports them.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseUsage {
    /// Time to first token; unknown for a response that is not streamed.
    pub(super) ttft: Option<Duration>,
    pub(super) prompt_tokens: Option<u32>,
    pub(super) cached_tokens: Option<u32>,
    pub(super) completion: Option<u32>,
}

impl ResponseUsage {
    /// Usage of a response: time to first token in microseconds; tokens of the prompt, cached ones, and tokens of the answer.
    pub(super) fn new(ttft_us: Option<u64>, tokens: [Option<u32>; 3]) -> Self {
        let [prompt_tokens, cached_tokens, completion] = tokens;
        Self {
            ttft: ttft_us.map(Duration::from_micros),
            prompt_tokens: prompt_tokens.filter(|tokens| *tokens > 0),
            cached_tokens,
            completion,
        }
    }

    /// Judges the usage by the known prompt, of which the filter estimates so many tokens.
    fn plausibility(&self, known: &Fingerprint, estimated: u32) -> Plausibility {
        Plausibility::of(self.prompt_tokens, self.cached_tokens, known, estimated)
    }
}

impl Router {
    pub(super) fn on_finish(
        &mut self,
        id: RequestId,
        served_by: ServedBy,
        end: End,
        usage: &ResponseUsage,
    ) {
        if let Some(forwarded) = self.pool.forwarded.remove(id) {
            let tokens = usage.prompt_tokens.zip(usage.cached_tokens);
            // The estimate of the filter, and with it the number of media, is not kept for forwarded requests.
            let verdict = usage.plausibility(&forwarded.fingerprint, u32::MAX);
            let tokens = tokens.filter(|_| verdict == Plausibility::Plausible);
            self.finish_forwarded(&forwarded, served_by, end, tokens);
            return;
        }
        let Some(mut request) = self.pool.in_flight.remove(&id) else {
            return;
        };
        request.is_streamed = request.has_begun && usage.ttft.is_some();
        let deviation = Deviation::of(request.replica, served_by);
        let is_elsewhere = deviation.is_elsewhere;
        self.signal();
        self.release_adapter(&request);
        self.end_of_tenant(&request);
        let evidence = self.judge_prompt(&request, served_by, end);
        self.release(&request, end, evidence, deviation);
        self.count_end(&request, end, deviation);
        let has_failed = deviation.is_retry() || matches!(end, End::Failed | End::Broke);
        let replicas = &mut self.pool.replicas;
        if let Some(slot) = replicas.slot_of(request.replica).filter(|_| has_failed)
            && let Some(replica) = replicas.get_mut(slot)
        {
            replica.false_hits.has_failed = true;
        }
        self.correct_index(&request, end, deviation);
        self.retract_prefill(&request, end);
        self.end_claims(&request, end == End::Answered && !is_elsewhere);
        let usage = &self.possible(&request, usage);
        let estimated = request.estimated_tokens;
        let verdict = usage.plausibility(&request.fingerprint, estimated);
        if end != End::Answered {
            return;
        }
        self.count_late_told(&request, usage);
        match verdict {
            Plausibility::Plausible => {
                self.count_tokens(&request, usage);
                self.learn(&request, usage, is_elsewhere);
            }
            // The engine adds the history that it stores, which the router has not read.
            Plausibility::TooLong if request.api == Some(Api::Responses) => {
                self.count_tokens(&request, usage);
                self.learn_answer_length(usage);
            }
            _ => self.reject_usage(&request, verdict, is_elsewhere),
        }
    }

    /// Usage without a length of the answer that the replica cannot have written: it had no time, or has no memory for it.
    fn possible(&self, request: &InFlightRequest, usage: &ResponseUsage) -> ResponseUsage {
        let took_s = self.pool.now.since(request.dispatched_at).as_secs_f64();
        let capacity = self.pool.replicas.kv_capacity_tokens(request.replica);
        let fits = |tokens: u32| capacity.is_none_or(|most| u64::from(tokens) <= most);
        let is_possible = |tokens: &u32| can_write(*tokens, took_s) && fits(*tokens);
        ResponseUsage {
            completion: usage.completion.filter(is_possible),
            ..*usage
        }
    }

    /// Counts a request out of its tenant's requests in flight.
    fn end_of_tenant(&mut self, request: &InFlightRequest) {
        let (tenant, tokens) = (request.tenant, request.tokens);
        self.pool
            .tenants
            .leave(tenant, tokens, |of| &mut of.in_flight);
    }

    /// Counts the tokens of a tenant's prompt.
    fn count_tokens(&mut self, request: &InFlightRequest, usage: &ResponseUsage) {
        self.pool.tenants.change(request.tenant, |tenant| {
            tenant.prompt_tokens += u64::from(usage.prompt_tokens.unwrap_or_default());
            tenant.cached_tokens += u64::from(usage.cached_tokens.unwrap_or_default());
        });
    }

    /// Drops usage that cannot be of the known prompt. A replica that computed less than the prompt does not hold it.
    #[inline(never)]
    fn reject_usage(
        &mut self,
        request: &InFlightRequest,
        verdict: Plausibility,
        is_elsewhere: bool,
    ) {
        self.counters.implausible_usage += 1;
        if verdict == Plausibility::TooShort && !is_elsewhere {
            self.take_back_claims(request);
        }
    }

    /// Tells the replicas how a request ended: the chosen one, which failed if Envoy retried, and the one that served.
    fn release(
        &mut self,
        request: &InFlightRequest,
        end: End,
        evidence: Evidence,
        deviation: Deviation,
    ) {
        let Deviation {
            is_elsewhere,
            is_overridden,
            other,
        } = deviation;
        let evidence = match end {
            End::Errored => Evidence::Error(request.identity()),
            End::Refused if !is_elsewhere => self.judge_refusal(request),
            _ => evidence,
        };
        let of_chosen = match end {
            // The chosen replica has not seen the request.
            _ if is_overridden => Evidence::None,
            // Its first attempt may have ended by a timeout as well.
            End::TimedOut => self.judge_timeout(request),
            End::Broke if evidence == Evidence::None => evidence,
            _ if is_elsewhere => Evidence::Failure,
            _ => evidence,
        };
        let computed = match end {
            End::Unsent => ComputedShare::Nothing,
            _ if is_overridden => ComputedShare::Nothing,
            _ if is_elsewhere => ComputedShare::Partly,
            End::Answered => ComputedShare::Whole,
            End::Refused => ComputedShare::Nothing,
            End::Errored | End::Failed | End::Broke | End::TimedOut => ComputedShare::Partly,
        };
        let (replicas, now) = (&mut self.pool.replicas, self.pool.now);
        replicas.on_release(request, of_chosen, computed, now);
        if let Some(other) = other {
            replicas.served_retry(other, evidence, now);
        }
        if let Some(prefill) = &request.prefill {
            self.end_prefill(prefill, evidence, computed);
        }
    }

    /// Verdict of a refused request on its replica: an error, where a peer answers what the replica refuses. A client that follows its prefix
    /// to one replica counts once.
    fn judge_refusal(&mut self, request: &InFlightRequest) -> Evidence {
        let replicas = &mut self.pool.replicas;
        let slot = replicas.slot_of(request.replica);
        if !slot.is_some_and(|slot| replicas.on_refusal(slot)) {
            return Evidence::None;
        }
        let client = request.session.filter(|_| request.matched_bytes > 0);
        Evidence::Error(client.map_or_else(|| request.identity(), |session| session.0))
    }

    /// Verdict of a request that a timeout of the gateway ended on its replica: none, where the replica has shown a sign of life
    /// since the dispatch. Otherwise a timeout counts as a refusal does.
    fn judge_timeout(&mut self, request: &InFlightRequest) -> Evidence {
        let (replica, sent) = (request.replica, request.dispatched_at);
        if request.has_begun || self.pool.replicas.has_sign_since(replica, sent) {
            return Evidence::None;
        }
        self.judge_refusal(request)
    }

    /// Counts how a response ended.
    pub(super) fn count_result(&mut self, end: End) {
        let counters = &mut self.counters;
        if end == End::Answered {
            counters.finished_ok += 1;
            return;
        }
        counters.finished_failed += 1;
        match end {
            End::Refused => counters.refused += 1,
            End::Broke => counters.broke += 1,
            End::TimedOut => counters.timed_out += 1,
            End::Unsent => counters.unsent += 1,
            End::Answered | End::Errored | End::Failed => {}
        }
    }

    fn count_end(&mut self, request: &InFlightRequest, end: End, deviation: Deviation) {
        if end == End::Answered {
            self.learn_service_time(request);
        }
        self.count_result(end);
        self.counters.overridden += u64::from(deviation.is_overridden);
        self.counters.retried_elsewhere += u64::from(deviation.is_retry());
    }

    /// Moves the prompt in the index from the chosen replica to the one that computed it, if that is another one.
    fn correct_index(&mut self, request: &InFlightRequest, end: End, deviation: Deviation) {
        let blocks = request.fingerprint.blocks();
        let is_answered = end == End::Answered;
        if deviation.is_elsewhere || !is_answered {
            self.take_back(request.replica, &request.fingerprint, &request.recorded);
        }
        let pool = &mut self.pool;
        if is_answered && let Some(other) = deviation.other.and_then(|id| pool.replicas.slot_of(id))
        {
            let matched = pool.index.deepest_of(blocks, other);
            let owner = request.recorded.owner;
            pool.index.record_of(owner, blocks, other, &matched);
        }
    }

    #[inline(never)]
    pub(super) fn on_abort(&mut self, id: RequestId) {
        if let Some(seq) = self.pool.queue.seq_of(id) {
            self.dequeue(seq);
            self.counters.aborted_waiting += 1;
        } else if self.pool.forwarded.contains(id) {
            self.abort_forwarded(id);
        } else if let Some(request) = self.pool.in_flight.remove(&id) {
            self.release_adapter(&request);
            self.end_of_tenant(&request);
            let (evidence, now) = (self.abort_evidence(&request), self.pool.now);
            // A gateway that does not show responses closes its stream when the request has been sent.
            if request.tells_start && !request.has_begun {
                self.take_back_claims(&request);
            }
            self.end_claims(&request, !request.tells_start);
            let replicas = &mut self.pool.replicas;
            replicas.on_release(&request, evidence, ComputedShare::Partly, now);
            if let Some(prefill) = &request.prefill {
                self.end_prefill(prefill, Evidence::None, ComputedShare::Partly);
            }
            self.counters.aborted_in_flight += 1;
        }
    }

    /// Verdict of an aborted request on its replica: a client that gave up past the SLO, without a first byte, was failed by
    /// a replica that has shown no sign of life since the dispatch.
    fn abort_evidence(&self, request: &InFlightRequest) -> Evidence {
        let (sent, pool) = (request.dispatched_at, &self.pool);
        let tells = request.tells_start && !request.has_begun && request.prefill.is_none();
        let is_past_slo = pool.now.since(sent) > pool.config.ttft_slo;
        if tells && is_past_slo && !pool.replicas.has_sign_since(request.replica, sent) {
            Evidence::Failure
        } else {
            Evidence::None
        }
    }

    /// Limits a replica's part of the index to the size of its cache.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate of a positive size; saturates"
    )]
    pub(super) fn budget(&mut self, id: ReplicaId, kv_capacity_tokens: u64) {
        let bytes = (kv_capacity_tokens as f64 * self.token_length.bytes()) as u64;
        if let Some(replica) = self.pool.replicas.slot_of(id) {
            self.pool.index.set_budget(replica, Some(bytes));
        }
    }
}

/// Where a request ended, beside the replica that was selected for it.
#[derive(Clone, Copy, Debug, Default)]
struct Deviation {
    is_elsewhere: bool,
    /// Whether the selected replica has not seen the request.
    is_overridden: bool,
    /// The replica that served instead, if a replica of the pool did.
    other: Option<ReplicaId>,
}

impl Deviation {
    fn of(selected: ReplicaId, served_by: ServedBy) -> Self {
        let elsewhere = |other| Self {
            is_elsewhere: true,
            is_overridden: matches!(served_by, ServedBy::Overridden(_)),
            other,
        };
        match served_by {
            ServedBy::Unreported => Self::default(),
            ServedBy::Replica(replica) if replica == selected => Self::default(),
            ServedBy::Replica(replica) => elsewhere(Some(replica)),
            ServedBy::UnknownHost => elsewhere(None),
            ServedBy::Overridden(other) => elsewhere(other),
        }
    }

    /// Whether the gateway tried the selected replica first.
    const fn is_retry(self) -> bool {
        self.is_elsewhere && !self.is_overridden
    }
}

/// Verdict of a finished response on its replica.
pub(super) const fn evidence_of(end: End) -> Evidence {
    match end {
        End::Answered => Evidence::Success,
        End::Refused | End::TimedOut | End::Unsent => Evidence::None,
        End::Errored | End::Failed | End::Broke => Evidence::Failure,
    }
}
