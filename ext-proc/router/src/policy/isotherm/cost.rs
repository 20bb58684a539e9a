//! The cost of sending a request to a replica, in seconds: the request's own wait and the time that it takes from others.
//!
//! `docs/design/default-policy.md` has the formula, `docs/decisions/0044-policies.md` the reasons.

use super::query::{CandidateQuery, MatchCost, PromptWork};
use crate::Push;
use crate::adapters::AdapterCost;
use crate::constant::constants;
use crate::index::PrefixMatch;
use crate::policy::View;
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::wait_state::{Objective, WaitState};

constants! {
    /// Weight of the lateness: a time to first token equal to the SLO costs so many SLOs beyond itself.
    LATENESS_WEIGHT: f64 = 24.0;
    /// Slope of the lateness beyond the SLO, below the slope at the SLO: a late request must not make the others late.
    LATE_SLOPE: f64 = 1.0 / 3.0;
    /// Weight of the work in multiples of itself, on the arrival of a request, where replicas compute as many prompt tokens as they find
    /// cached.
    AFFINITY_WEIGHT: f64 = 3.0;
    /// Bound on that weight where they compute more.
    AFFINITY_WEIGHT_MAX: f64 = 400.0;
    /// Objectives after which a request no longer waits for the sake of warm caches: the replica that holds its prompt may be busy for
    /// minutes.
    AFFINITY_OBJECTIVES: f64 = 6.0;
    /// Factor by which memory comes free later than if each request held an equal share: requests share blocks, and grow as they run.
    MEMORY_WAIT_FACTOR: f64 = 10.0;
    /// Weight of a second by which a prompt stalls an answer, next to a second for which the prompt waits. Guards: a long prompt lets
    /// the answers that it would stall end first.
    STALL_WEIGHT: f64 = 2.0;
}

/// An upper bound of rounding errors, as a share of a cost.
const ROUNDING_SHARE: f64 = 1e-9;

/// The cost of candidates under the pool's load, which is looked up once for each selection.
#[derive(Debug)]
pub(super) struct CostModel<'a> {
    pub(super) view: &'a View<'a>,
    /// The trusted replicas that are not available.
    pub(super) busy: ReplicaSet,
    /// Queued requests for each replica of the pool.
    waiting_per_replica: f64,
    /// Weight of the work, for the sake of warm caches.
    affinity_weight: f64,
}

/// A replica with the cost of sending a request to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CandidateCost {
    pub(super) replica: ReplicaIndex,
    pub(super) cost: f64,
    /// Time to compute the prompt, in seconds.
    pub(super) work_s: f64,
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
        Self {
            view,
            busy: view.pool.replicas.trusted().without(view.candidates),
            waiting_per_replica: view.pool.queue.waiting_len() as f64
                / view.pool.replicas.staying().len().max(1) as f64,
            affinity_weight: affinity_weight(view.pool.caches.cached_share.computed_per_cached()),
        }
    }

    /// The model without a weight for the sake of warm caches, for costs that compare with those of peer regions.
    pub(super) fn without_affinity(view: &'a View<'a>) -> Self {
        Self {
            affinity_weight: 0.0,
            ..Self::new(view)
        }
    }

    /// Whether the prompt had better wait until some of the replica's answers have ended, since computing it stalls them all.
    ///
    /// The answers end at a known rate, and the prompt does not stall an answer that has ended. It waits while that saves more in a
    /// second than a second costs a late request, and for no longer than it takes to compute.
    pub(super) fn stalls_too_many(&self, candidate: &CandidateCost, timing: WaitState) -> bool {
        let work_s = candidate.work_s;
        let (Some(service_s), true) = (self.view.pool.service_s, timing.waited_s < work_s) else {
            return false;
        };
        let answers = f64::from(self.view.rank(candidate.replica).requests());
        let saved_s = STALL_WEIGHT.get() * work_s * answers;
        let lost_s = service_s.max(work_s) * marginal_lateness(f64::INFINITY, timing.objective);
        self.view.pool.config.push != Push::Blind && saved_s > lost_s
    }

    /// The time that computing a prompt takes from the requests that wait, in seconds.
    pub(super) fn delay_of_queue_s(&self, candidate: &CandidateCost) -> f64 {
        candidate.work_s * self.waiting_per_replica
    }

    /// Prices a replica as if it held what the one of these holds that holds most.
    pub(super) fn price_as_cached(
        &self,
        query: &CandidateQuery<'_>,
        replica: ReplicaIndex,
        on: &ReplicaSet,
    ) -> CandidateCost {
        let blocks = query.request.fingerprint.blocks();
        let matched = self
            .view
            .pool
            .caches
            .index
            .deepest_within(blocks, &query.known, on);
        let work = query.work(query.request.uncached_tokens(matched.depth));
        let adapter = query.adapter_cost(replica, self.view);
        self.price_work(replica, matched, work, query.timing, adapter)
    }

    /// Prices a replica, after a lookup of the prefix that it holds.
    pub(super) fn price(&self, query: &CandidateQuery<'_>, replica: ReplicaIndex) -> CandidateCost {
        let blocks = query.request.fingerprint.blocks();
        let index = &self.view.pool.caches.index;
        let matched = index.deepest_of_within(blocks, &query.known, replica);
        let match_cost = MatchCost::of(matched, query, self.view);
        let tokens = match_cost.uncached_on(replica, query, self.view);
        let adapter = query.adapter_cost(replica, self.view);
        self.price_work(replica, matched, query.work(tokens), query.timing, adapter)
    }

    /// Prices a replica for a prompt of so many tokens, none of which the replica caches.
    pub(super) fn price_unheld(&self, replica: ReplicaIndex, tokens: f64) -> CandidateCost {
        let prompt = PromptWork::here(tokens);
        let timing = WaitState::new(self.view.pool.common_objective());
        let adapter = AdapterCost::default();
        self.price_work(replica, PrefixMatch::default(), prompt, timing, adapter)
    }

    /// Prices a replica for a query; `None` unless the replica costs less than `cost_max`.
    pub(super) fn price_below(
        &self,
        query: &CandidateQuery<'_>,
        replica: ReplicaIndex,
        match_cost: &MatchCost,
        cost_max: Option<f64>,
    ) -> Option<CandidateCost> {
        let tokens = match_cost.uncached_on(replica, query, self.view);
        let adapter = query.adapter_cost(replica, self.view);
        let matched = match_cost.matched;
        let candidate =
            self.price_work(replica, matched, query.work(tokens), query.timing, adapter);
        (cost_max.is_none_or(|most| candidate.cost < most)).then_some(candidate)
    }

    /// Prices a replica for this work on a prompt, where the request has waited as `timing` says.
    pub(super) fn price_work(
        &self,
        replica: ReplicaIndex,
        matched: PrefixMatch,
        prompt: PromptWork,
        timing: WaitState,
        adapter: AdapterCost,
    ) -> CandidateCost {
        let view = self.view;
        let replicas = &view.pool.replicas;
        // An engine computes nothing while it loads an adapter.
        let work_s = replicas.prefill_s(replica, prompt.tokens) + adapter.load_s;
        let service_s = view.pool.service_s.unwrap_or_default();
        let memory_s = replicas.memory_wait_s(replica, prompt.uncached, service_s);
        let computed_s = replicas.ttft_s(replica, prompt.tokens, view.pool.now)
            + prompt.remote_s
            + adapter.wait_s
            + adapter.load_s;
        let requests = f64::from(view.rank(replica).requests());
        let terms = CostTerms {
            work_s,
            ttft_s: computed_s + MEMORY_WAIT_FACTOR.get() * memory_s,
            pool_work_s: prompt.tokens * replicas.latency().prefill.each_s,
            slot_s: adapter.slot_s,
            requests,
        };
        let cost = self.cost(&terms, timing);
        CandidateCost {
            replica,
            cost,
            work_s,
            ttft_s: terms.ttft_s,
            matched,
        }
    }

    /// A lower bound on the cost of any replica that holds at most so many blocks: the cost of an idle replica that has the adapter
    /// and the fastest prefill line. Every part of the cost is monotonic, and rounding errors are subtracted.
    pub(super) fn lower_bound(&self, query: &CandidateQuery<'_>, depth: usize) -> f64 {
        let tokens = query.uncached_at_least(depth, self.view);
        let bound = self.least_cost(query.work(tokens), query.timing);
        // For a replica that holds less, a prefill replica may compute the prompt.
        let remote = query.remote_work(tokens);
        let remote = remote.map(|remote| self.least_cost(remote, query.timing));
        remote.map_or(bound, |remote| remote.min(bound)) * (1.0 - ROUNDING_SHARE)
    }

    /// The least cost of this work on a prompt, wherever it is done.
    fn least_cost(&self, prompt: PromptWork, timing: WaitState) -> f64 {
        let view = self.view;
        let fastest = view.pool.replicas.fastest();
        let work_s = prompt.tokens * fastest.each_s;
        let ttft_s = fastest.fixed_s + work_s + prompt.remote_s;
        let requests = f64::from(view.pool.replicas.least_requests());
        let terms = CostTerms {
            work_s,
            ttft_s,
            pool_work_s: prompt.tokens * view.pool.replicas.latency().prefill.each_s,
            slot_s: 0.0,
            requests,
        };
        self.cost(&terms, timing)
    }

    /// The cost of a request.
    fn cost(&self, terms: &CostTerms, timing: WaitState) -> f64 {
        let until_dispatch_s = timing.until_dispatch_s();
        let mut delayed = terms.requests;
        if self.waiting_per_replica > 0.0 {
            delayed +=
                self.waiting_per_replica * marginal_lateness(until_dispatch_s, timing.objective);
        }
        let affinity =
            terms.pool_work_s * self.affinity_weight * timing.share_left(AFFINITY_OBJECTIVES.get());
        let ttft_s = until_dispatch_s + terms.ttft_s;
        let waits = with_lateness(ttft_s, timing.objective) + terms.work_s * delayed + terms.slot_s;
        waits + affinity
    }
}

/// The weight of the work where replicas compute so many prompt tokens for each one that they find cached.
///
/// Prompts that no replica holds balance the load wherever they are sent. The more of them there are, the more can the others
/// wait for their caches.
fn affinity_weight(computed_per_cached: f64) -> f64 {
    (AFFINITY_WEIGHT.get() * computed_per_cached.powi(3)).min(AFFINITY_WEIGHT_MAX.get())
}

/// Inputs of the cost of a request on one replica.
#[derive(Clone, Copy, Debug)]
struct CostTerms {
    /// Time to compute the prompt.
    work_s: f64,
    /// Time from dispatch to the first token.
    ttft_s: f64,
    /// Time to compute the prompt at the pool's speed, which does not tell replicas apart.
    pool_work_s: f64,
    /// Time that later requests lose because the adapter takes a slot.
    slot_s: f64,
    /// Requests at the replica, those of other services included.
    requests: f64,
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
        share.powi(2)
    } else {
        1.0 + LATE_SLOPE.get() * (share - 1.0)
    };
    // In multiples of the pool's SLO: otherwise a late request with a long SLO would cost more than a late one with a short SLO.
    ttft_s + LATENESS_WEIGHT.get() * pool_slo_s * weight * lateness
}

/// The cost of one more second of waiting to a request that has waited for `waited_s`.
fn marginal_lateness(waited_s: f64, objective: Objective) -> f64 {
    if objective.slo_s <= 0.0 {
        return 1.0;
    }
    let share = waited_s / objective.slo_s;
    let slope = if share <= 1.0 {
        2.0 * share
    } else {
        LATE_SLOPE.get()
    };
    1.0 + LATENESS_WEIGHT.get() * objective.urgency() * slope
}
