//! The cost of sending a request to a replica, in seconds: the request's own wait and the time that it takes from others.
//!
//! `docs/design/default-policy.md` has the formula, `docs/decisions/0044-policies.md` the reason for each term.

use super::query::{CandidateQuery, MatchCost, PromptWork};
use crate::adapters::AdapterCost;
use crate::index::PrefixMatch;
use crate::policy::{View, rank};
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::wait_state::{Objective, WaitState};

/// Cost of a time to first token equal to the SLO, beyond itself, in multiples of the SLO.
const LATENESS: f64 = 24.0;
/// Slope of the lateness beyond the SLO: the request is late already, while others may still be in time.
const LATE_SLOPE: f64 = 1.0 / 3.0;
/// Weight of a second by which the request's own answer stalls: prompts of some seconds stand for those of the whole answer.
const OWN_STALL: f64 = 0.25;
/// Bound on the share of its time that a replica is taken to compute prompts, since a rate over some seconds is rough.
const COMPUTING_MAX: f64 = 0.7;
/// Bound on the number of prompts that are counted as delayed.
const DELAYED_MAX: f64 = 16.0;
/// Weight of a second by which a larger batch writes slower, next to a second before the first token.
pub(super) const WRITING: f64 = 0.05;
/// Bound on the utilisation of a pool.
const UTILISATION_MAX: f64 = 0.95;
/// An upper bound of rounding errors, as a share of a cost.
const ROUNDING: f64 = 1e-9;
/// Factor by which memory comes free later than by equal shares: requests share blocks, and running ones grow.
const MEMORY: f64 = 10.0;

/// The cost of candidates under the pool's load, which is looked up once for each selection.
#[derive(Debug)]
pub(super) struct CostModel<'a> {
    pub(super) view: &'a View<'a>,
    /// The trusted replicas that are not available.
    pub(super) busy: ReplicaSet,
    /// Prompts delayed for each second that a replica is busy.
    delayed_per_busy_s: f64,
    /// Queued requests for each replica of the pool.
    waiting_for_each: f64,
}

/// A replica with the cost of sending a request to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CandidateCost {
    pub(super) replica: ReplicaIndex,
    pub(super) cost: f64,
    /// Time from dispatch to the first token, in seconds.
    pub(super) ttft_s: f64,
    /// The prefix of the prompt that the replica holds.
    pub(super) matched: PrefixMatch,
}

impl<'a> CostModel<'a> {
    #[expect(
        clippy::cast_precision_loss,
        reason = "numbers of requests and replicas"
    )]
    pub(super) fn new(view: &'a View<'a>) -> Self {
        let (requests_per_s, utilisation) = view.replicas.rates(view.now);
        let spare = 1.0 - utilisation.min(UTILISATION_MAX);
        Self {
            view,
            busy: view.replicas.trusted().without(view.candidates),
            delayed_per_busy_s: requests_per_s / spare,
            waiting_for_each: view.queue.waiting_len() as f64
                / view.replicas.staying().len().max(1) as f64,
        }
    }

    /// Prices a replica whose match is not known yet.
    pub(super) fn price(&self, query: &CandidateQuery<'_>, replica: ReplicaIndex) -> CandidateCost {
        let blocks = query.request.fingerprint.blocks();
        let index = &self.view.index;
        let matched = index.deepest_of_within(blocks, &query.known, replica);
        let match_cost = MatchCost::of(matched, query, self.view);
        let tokens = match_cost.uncached_on(replica, query, self.view);
        let adapter = query.adapter_cost(replica, self.view);
        self.priced(replica, matched, query.work(tokens), query.timing, adapter)
    }

    /// Prices a replica for a prompt of so many tokens of which it holds nothing.
    pub(super) fn price_unheld(&self, replica: ReplicaIndex, tokens: f64) -> CandidateCost {
        let prompt = PromptWork::here(tokens);
        let timing = WaitState::new(self.view.common_objective());
        let adapter = AdapterCost::default();
        self.priced(replica, PrefixMatch::default(), prompt, timing, adapter)
    }

    /// Prices a replica for a request that is sent now; `None` unless it costs less than this bound.
    pub(super) fn price_below(
        &self,
        query: &CandidateQuery<'_>,
        replica: ReplicaIndex,
        match_cost: &MatchCost,
        cost_max: Option<f64>,
    ) -> Option<CandidateCost> {
        let tokens = match_cost.uncached_on(replica, query, self.view);
        let adapter = query.adapter_cost(replica, self.view);
        let costs = self.costs(replica, query.work(tokens), query.timing, adapter);
        if cost_max.is_some_and(|most| costs.least() >= most) {
            return None;
        }
        let candidate = self.complete(&costs, replica, match_cost.matched);
        (cost_max.is_none_or(|most| candidate.cost < most)).then_some(candidate)
    }

    /// Prices a replica with this work on the prompt, for a request that is sent after these waits.
    pub(super) fn priced(
        &self,
        replica: ReplicaIndex,
        matched: PrefixMatch,
        prompt: PromptWork,
        timing: WaitState,
        adapter: AdapterCost,
    ) -> CandidateCost {
        let costs = self.costs(replica, prompt, timing, adapter);
        self.complete(&costs, replica, matched)
    }

    fn complete(
        &self,
        costs: &Costs,
        replica: ReplicaIndex,
        matched: PrefixMatch,
    ) -> CandidateCost {
        let view = self.view;
        let computing = view
            .replicas
            .utilisation_of(replica, view.now)
            .min(COMPUTING_MAX);
        let stalled_s = costs.own_s * computing / (1.0 - computing);
        CandidateCost {
            replica,
            cost: costs.waits + OWN_STALL * stalled_s + costs.writing,
            ttft_s: costs.ttft_s,
            matched,
        }
    }

    /// The parts of the cost, but for stalls, which take longest to work out.
    fn costs(
        &self,
        replica: ReplicaIndex,
        prompt: PromptWork,
        timing: WaitState,
        adapter: AdapterCost,
    ) -> Costs {
        let view = self.view;
        let replicas = &view.replicas;
        // An engine computes nothing while it loads an adapter.
        let work_s = replicas.prefill_s(replica, prompt.tokens) + adapter.load_s;
        let service_s = view.service_s.unwrap_or_default();
        let memory_s = MEMORY * replicas.memory_wait_s(replica, prompt.uncached, service_s);
        let outstanding = f64::from(rank(view, replica).outstanding());
        let work = Work {
            work_s,
            busy_s: replicas.backlog_s(replica, view.now) + work_s,
            ttft_s: replicas.ttft_s(replica, prompt.tokens, view.now)
                + memory_s
                + prompt.remote_s
                + adapter.wait_s
                + adapter.load_s,
            slot_s: adapter.slot_s,
            outstanding,
            writing_s: replicas.writing_s(replica, outstanding),
        };
        self.costs_of(&work, timing)
    }

    /// A lower bound on the cost of any replica that holds at most so many blocks: that of an idle replica as fast as the
    /// fastest, and has the adapter. Every part of the cost is monotonic, and rounding errors are subtracted.
    pub(super) fn lower_bound(&self, query: &CandidateQuery<'_>, depth: usize) -> f64 {
        let tokens = query.uncached_at_least(depth, self.view);
        let bound = self.least_of(query.work(tokens), query.timing);
        // A replica that holds less may leave the prompt to a prefill replica.
        let remote = query.remote_work(tokens);
        let remote = remote.map(|remote| self.least_of(remote, query.timing));
        remote.map_or(bound, |remote| remote.min(bound)) * (1.0 - ROUNDING)
    }

    /// The least cost of this work on a prompt, wherever it is done.
    fn least_of(&self, prompt: PromptWork, timing: WaitState) -> f64 {
        let view = self.view;
        let latency = view.replicas.fastest();
        let work_s = prompt.tokens * latency.prefill.each_s;
        let outstanding = f64::from(view.replicas.least_outstanding());
        let work = Work {
            work_s,
            busy_s: work_s,
            ttft_s: latency.prefill.fixed_s + work_s + prompt.remote_s,
            slot_s: 0.0,
            outstanding,
            writing_s: view.replicas.writing_at_s(latency, outstanding),
        };
        self.costs_of(&work, timing).least()
    }

    fn costs_of(&self, work: &Work, timing: WaitState) -> Costs {
        let mut delayed =
            work.outstanding + (self.delayed_per_busy_s * work.busy_s).min(DELAYED_MAX);
        if self.waiting_for_each > 0.0 {
            delayed += self.waiting_for_each * marginal_lateness(timing.waited_s, timing.objective);
        }
        let (own_s, theirs_s) = work.writing_s;
        Costs {
            ttft_s: work.ttft_s,
            own_s,
            waits: with_lateness(timing.waited_s + work.ttft_s, timing.objective)
                + work.work_s * delayed
                + work.slot_s,
            writing: WRITING * (own_s + theirs_s),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Work {
    /// Time to compute the prompt.
    work_s: f64,
    /// Time until the prompt is computed, the queued prefill included.
    busy_s: f64,
    ttft_s: f64,
    /// Time that the adapter's slot is worth to later requests.
    slot_s: f64,
    /// Requests in flight on the replica.
    outstanding: f64,
    /// Time to write the answer, and the time by which it slows the other answers down.
    writing_s: (f64, f64),
}

#[derive(Clone, Copy, Debug)]
struct Costs {
    ttft_s: f64,
    /// Time to write the answer.
    own_s: f64,
    waits: f64,
    writing: f64,
}

impl Costs {
    /// The cost without stalls, which is a lower bound of it.
    fn least(&self) -> f64 {
        self.waits + self.writing
    }
}

/// The cost of a time to first token to the request itself.
pub(super) fn with_lateness(ttft_s: f64, objective: Objective) -> f64 {
    let Objective {
        slo_s,
        pool_slo_s,
        weight,
    } = objective;
    if slo_s <= 0.0 {
        return ttft_s;
    }
    let share = ttft_s / slo_s;
    let lateness = if share <= 1.0 {
        share.powi(3)
    } else {
        1.0 + LATE_SLOPE * (share - 1.0)
    };
    // By the pool's SLO: otherwise a late request with a long SLO would cost more than a late one with a short SLO.
    ttft_s + LATENESS * pool_slo_s * weight * lateness
}

/// The cost of one more second to a request that has waited so long.
fn marginal_lateness(waited_s: f64, objective: Objective) -> f64 {
    if objective.slo_s <= 0.0 {
        return 1.0;
    }
    let share = waited_s / objective.slo_s;
    let slope = if share <= 1.0 {
        3.0 * share.powi(2)
    } else {
        LATE_SLOPE
    };
    1.0 + LATENESS * objective.urgency() * slope
}
