//! What it costs to send a request to a replica, in seconds, to it and to others.
//!
//! With *t* the time to first token (what the request has waited, the replica's backlog, a wait for memory, its own uncached
//! prompt) and *w* the part of it that its uncached prompt takes:
//!
//! ```text
//! cost = t + 6 slo L(t / slo)            its own wait, dearer the nearer it comes to what is wanted, dear beyond that
//!      + w (outstanding / 2 + q + v)     every answer that the replica is writing stalls for w; q prompts wait for w, and v
//!      + s u / (1 - u) / 2               its own answer stalls, too, for prompts that come after it
//!      + (s + theirs) / 10               a fuller batch writes slower: its answer, and all others a little
//!
//! L(x) = x^3 up to 1, then straight on: 3 x - 2
//! q = min(16, rate x (backlog + w) / (1 - min(0.95, utilisation)))  prompts that come while the replica is busy
//! v = queue / replicas x (1 + 18 min(1, waited / slo)^2)    those that wait here, at what a second costs this one
//! s = how long its answer takes to write, u = the share of its time that this replica computes prompts (0.7 at most)
//! ```
//!
//! The second line is what other policies leave out. A second of prefill on a replica that writes 30 answers costs 30
//! seconds of other people's time; that is why a warm cache is worth much more than the time to first token that it
//! saves, and how much more follows from the load at hand. Without v, a request that is about to be late takes any replica
//! and computes all of its prompt there, which makes the next ones late: a queue that has grown goes on growing. The third
//! line is the other half of the second: short prompts gather where few are computed, away from long ones.
//!
//! L goes on straight because a late request must not become a desperate one: with a cube throughout, one that is three times
//! too late outweighs everybody who can still be in time.

use super::query::{CandidateQuery, MatchCost, WaitTimes};
use crate::index::PrefixMatch;
use crate::policy::{View, load_key, uncached_tokens};
use crate::replica_index::{ReplicaIndex, ReplicaSet};

/// What a time to first token that is just as long as is wanted costs, beyond itself, in such times.
const LATENESS: f64 = 6.0;
/// What a second counts by which an answer stalls that is being written, next to a second before the first token.
const STALLED: f64 = 0.5;
/// No replica is taken to compute prompts for a larger share of its time: a rate over some seconds is a rough one.
const COMPUTING_MAX: f64 = 0.7;
/// The most other prompts that are counted as delayed.
const DELAYED_MAX: f64 = 16.0;
/// What a second counts by which a fuller batch writes slower, next to a second before the first token.
const WRITING: f64 = 0.1;
/// No pool is taken to be busier than this.
const UTILISATION_MAX: f64 = 0.95;
/// More than rounding can change of a cost, as a share of it.
const ROUNDING: f64 = 1e-9;
/// A request that ends gives back only what it does not share, and those that stay grow: how many times longer memory takes
/// to come free than if each gave back its share at once.
const MEMORY: f64 = 10.0;

/// What is the same for all offers of one question: the pool's load, looked up once.
#[derive(Debug)]
pub(super) struct CostModel<'a> {
    pub(super) view: &'a View<'a>,
    /// Trusted replicas that are not available.
    pub(super) busy: ReplicaSet,
    /// Prompts that make each other wait, for each second that a replica is busy.
    delayed_per_busy_s: f64,
    /// Requests that wait here for each replica.
    waiting_for_each: f64,
}

/// What it costs to send a request to a replica.
#[derive(Clone, Copy, Debug)]
pub(super) struct CandidateCost {
    /// The replica.
    pub(super) slot: ReplicaIndex,
    /// What it costs, in seconds.
    pub(super) cost: f64,
    /// Time to first token from when it is sent, in seconds.
    pub(super) ttft_s: f64,
    /// What the replica has of the prompt.
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
            waiting_for_each: view.queue.len() as f64 / view.replicas.staying().len().max(1) as f64,
        }
    }

    /// What a replica offers of which it is not known yet what it has of the prompt.
    pub(super) fn candidate(
        &self,
        query: &CandidateQuery<'_>,
        slot: ReplicaIndex,
    ) -> CandidateCost {
        let blocks = query.request.fingerprint.blocks();
        let index = self.view.index;
        let matched = index.deepest_of_within(blocks, &query.known, slot);
        let match_cost = MatchCost::of(matched, query, self.view);
        self.offer_of(query, slot, &match_cost, query.waited)
    }

    /// What one offers that has this of the prompt, when it is sent the request after so long.
    pub(super) fn offer_of(
        &self,
        query: &CandidateQuery<'_>,
        slot: ReplicaIndex,
        match_cost: &MatchCost,
        waited: WaitTimes,
    ) -> CandidateCost {
        let tokens = match_cost.uncached_on(slot, query, self.view);
        self.priced(slot, match_cost.matched, tokens, waited)
    }

    /// The same of one that is sent it now, unless that costs no less than the `other` offer.
    pub(super) fn better_offer(
        &self,
        query: &CandidateQuery<'_>,
        slot: ReplicaIndex,
        match_cost: &MatchCost,
        other: Option<&CandidateCost>,
    ) -> Option<CandidateCost> {
        let tokens = match_cost.uncached_on(slot, query, self.view);
        let costs = self.costs(slot, tokens, query.waited);
        if other.is_some_and(|other| costs.least() >= other.cost) {
            return None;
        }
        let candidate = self.offer_at(&costs, slot, match_cost.matched);
        (other.is_none_or(|other| candidate.cost < other.cost)).then_some(candidate)
    }

    /// What the replica would offer if it had this of the prompt and nothing that only it can have.
    pub(super) fn offer_of_another(
        &self,
        query: &CandidateQuery<'_>,
        slot: ReplicaIndex,
        matched: PrefixMatch,
    ) -> CandidateCost {
        let tokens = uncached_tokens(query.request, matched.depth);
        self.priced(slot, matched, tokens, query.waited)
    }

    /// What it costs to have a replica compute so many tokens, after so long.
    fn priced(
        &self,
        slot: ReplicaIndex,
        matched: PrefixMatch,
        tokens: f64,
        waited: WaitTimes,
    ) -> CandidateCost {
        let costs = self.costs(slot, tokens, waited);
        self.offer_at(&costs, slot, matched)
    }

    fn offer_at(&self, costs: &Costs, slot: ReplicaIndex, matched: PrefixMatch) -> CandidateCost {
        let view = self.view;
        let computing = view
            .replicas
            .utilisation_of(slot, view.now)
            .min(COMPUTING_MAX);
        CandidateCost {
            slot,
            cost: costs.with_stalls(costs.own_s * computing / (1.0 - computing)),
            ttft_s: costs.ttft_s,
            matched,
        }
    }

    /// All but what this replica's share of time says, which takes longest to work out.
    fn costs(&self, slot: ReplicaIndex, tokens: f64, waited: WaitTimes) -> Costs {
        let view = self.view;
        let replicas = view.replicas;
        let work_s = replicas.prefill_s(slot, tokens);
        let service_s = view.service_s.unwrap_or_default();
        let memory_s = MEMORY * replicas.memory_wait_s(slot, tokens, service_s);
        let outstanding = f64::from(load_key(view, slot).0);
        let work = Work {
            work_s,
            busy_s: replicas.backlog_s(slot, view.now) + work_s,
            ttft_s: replicas.ttft_s(slot, tokens, view.now) + memory_s,
            outstanding,
            writing_s: replicas.writing_s(slot, outstanding),
        };
        self.costs_of(&work, waited)
    }

    /// Any replica costs at least this that has no more of the prompt than so much: an idle one, as fast as the fastest. More of
    /// anything never makes the sum less, and what rounding may is taken off.
    pub(super) fn floor(&self, query: &CandidateQuery<'_>, depth: usize) -> f64 {
        let view = self.view;
        let tokens = query.uncached_at_least(depth, view);
        let latency = view.replicas.fastest();
        let work_s = tokens * latency.prefill.each_s;
        let outstanding = f64::from(view.replicas.least_outstanding());
        let work = Work {
            work_s,
            busy_s: work_s,
            ttft_s: latency.prefill.fixed_s + work_s,
            outstanding,
            writing_s: view.replicas.writing_at_s(latency, outstanding),
        };
        self.costs_of(&work, query.waited).least() * (1.0 - ROUNDING)
    }

    fn costs_of(&self, work: &Work, waited: WaitTimes) -> Costs {
        let view = self.view;
        let delayed = STALLED * work.outstanding
            + (self.delayed_per_busy_s * work.busy_s).min(DELAYED_MAX)
            + self.waiting_for_each * marginal_lateness(waited.waited_s, view);
        let (own_s, theirs_s) = work.writing_s;
        Costs {
            ttft_s: work.ttft_s,
            own_s,
            waits: with_lateness(waited.waited_s + work.ttft_s, view) + work.work_s * delayed,
            writing: WRITING * (own_s + theirs_s),
        }
    }
}

/// What a replica has to do for a request.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// How long its prompt takes.
    work_s: f64,
    /// How long the replica is busy then.
    busy_s: f64,
    ttft_s: f64,
    /// How many other requests it has.
    outstanding: f64,
    /// How long the answer takes to write, and by how much those of the others take longer for it.
    writing_s: (f64, f64),
}

/// What an offer's cost is made of.
#[derive(Clone, Copy, Debug)]
struct Costs {
    ttft_s: f64,
    /// How long its answer takes to write, in seconds.
    own_s: f64,
    waits: f64,
    writing: f64,
}

impl Costs {
    /// How much it is at least: stalls are never less than none, and rounding keeps that.
    fn least(&self) -> f64 {
        self.waits + self.writing
    }

    /// How much it is when its answer stalls for so long.
    fn with_stalls(&self, stalled_s: f64) -> f64 {
        self.waits + STALLED * stalled_s + self.writing
    }
}

/// What a time to first token costs the request itself.
fn with_lateness(ttft_s: f64, view: &View<'_>) -> f64 {
    let slo_s = view.ttft_slo_s;
    if slo_s <= 0.0 {
        return ttft_s;
    }
    let share = ttft_s / slo_s;
    let lateness = if share <= 1.0 {
        share.powi(3)
    } else {
        3.0 * share - 2.0
    };
    ttft_s + LATENESS * slo_s * lateness
}

/// What one more second costs a request that has waited so long.
fn marginal_lateness(waited_s: f64, view: &View<'_>) -> f64 {
    if view.ttft_slo_s <= 0.0 {
        return 1.0;
    }
    1.0 + 3.0 * LATENESS * (waited_s / view.ttft_slo_s).min(1.0).powi(2)
}
