//! Policies: which replica serves a request, and which queued request a freed replica takes.
//!
//! Plain policies leave the second choice at first come, first served. A policy may also let a request wait for a busy
//! replica (delay scheduling). Selecting changes nothing, so an explanation shows what would happen. A policy with state (the
//! next replica of a round, the next random number) changes it in [`Policy::on_event`] alone.

#[cfg(feature = "research")]
mod block_cost;
mod cache_aware;
mod consistent_hash;
mod dual_map;
#[cfg(feature = "research")]
mod endpoint_scorers;
#[cfg(feature = "research")]
mod in_flight;
mod isotherm;
mod least_outstanding;
#[cfg(feature = "research")]
mod lmetric;
mod min_ttft;
mod name;
mod preble;
mod prefix_tree;
mod random;
mod round_robin;
#[cfg(feature = "research")]
mod smetric;
#[cfg(feature = "research")]
mod token_load;

use core::fmt::Debug;
use core::ops::Deref;
use std::borrow::Cow;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::SeedableRng;
use smallvec::SmallVec;

#[cfg(feature = "research")]
pub use dual_map::{Ablation, CandidateRule};
#[cfg(feature = "research")]
pub use endpoint_scorers::ScorerWeights;
pub use name::{PolicyName, UnknownPolicy};

use crate::constant::constants;
use crate::index::PrefixMatch;
use crate::pool_state::PoolState;
use crate::queue::{QueueSeq, QueuedRequest};
use crate::replica::Rank;
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::wait_state::WaitState;
use crate::{PromptCost, Reason, Request};

/// Oldest queued requests that are considered for one freed replica.
pub(crate) const LOOKED_AT_MAX: usize = 64;

/// Later queued requests that are considered, too, because the replica is their affinity replica.
pub(crate) const LOOKED_AT_BY_AFFINITY_MAX: usize = 32;

constants! {
    /// Holders of a prefix from which on only the least loaded replicas are searched for a holder.
    HOLDERS_MANY: usize = 32;
    /// Least loaded replicas that are searched for a holder of such a prefix. Guards: a decision does bounded work, however many replicas hold
    /// the prefix.
    LEAST_LOADED_MAX: usize = 16;
}

/// The state of the pool for one selection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) pool: &'a PoolState,
    /// The replicas to choose from: available, and allowed for this request. Never empty, except in events.
    pub(crate) candidates: &'a ReplicaSet,
    /// The pool's SLO of the time to first token, in seconds.
    pub(crate) ttft_slo_s: f64,
    /// Waits of the request, and its objective.
    pub(crate) timing: WaitState,
}

impl PoolState {
    /// The view of a policy on a request that has not waited.
    pub(crate) fn view<'a>(&'a self, candidates: &'a ReplicaSet) -> View<'a> {
        View {
            pool: self,
            candidates,
            ttft_slo_s: self.config.ttft_slo.as_secs_f64(),
            timing: WaitState::new(self.common_objective()),
        }
    }

    /// The view of a policy on a queued request.
    pub(crate) fn view_of<'a>(
        &'a self,
        queued: &QueuedRequest,
        candidates: &'a ReplicaSet,
    ) -> View<'a> {
        View {
            timing: self.timing(queued),
            ..self.view(candidates)
        }
    }
}

impl Deref for View<'_> {
    type Target = PoolState;

    fn deref(&self) -> &PoolState {
        self.pool
    }
}

/// Where a request should go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Selection {
    /// The request goes to this candidate now.
    Dispatch(Dispatch),
    /// The request waits for this replica, although others are free.
    WaitFor(ReplicaIndex),
}

/// A replica, selected for a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dispatch {
    pub(crate) replica: ReplicaIndex,
    pub(crate) reason: Reason,
    /// The part of the prompt that the replica holds, where the policy looked it up.
    pub(crate) matched: Option<PrefixMatch>,
}

impl Selection {
    fn to(replica: ReplicaIndex, reason: Reason, matched: Option<PrefixMatch>) -> Self {
        Self::Dispatch(Dispatch {
            replica,
            reason,
            matched,
        })
    }
}

/// The queued requests that wait for another replica than the freed one, each with the replica that it waits for.
pub(crate) type DelayedRequests = SmallVec<[(QueueSeq, ReplicaIndex); 8]>;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NextRequest {
    /// [`Policy::select_replica`] says where this request goes, among all available replicas.
    AnyReplica(QueueSeq),
    /// This request goes to the freed replica.
    ThisReplica(QueueSeq, Dispatch),
}

/// The rules that the router applies on behalf of a policy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PolicyRules {
    /// Whether a queued request goes to the candidates of the policy only, until it has waited too long.
    pub(crate) is_bound_to_candidates: bool,
    /// Whether requests past the SLO come behind the others, which are then served in time under overload.
    pub(crate) past_slo_last: bool,
    /// Whether the session alone decides. A warm cache in a peer region then attracts no request.
    pub(crate) ignores_prefixes: bool,
    /// Share of the prompt from which a match selects a fallback.
    pub(crate) fallback_share_min: f64,
}

/// A change that a policy with state may follow. The candidates of a view are all available replicas, maybe none.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PolicyEvent<'a> {
    /// A request arrived; [`Policy::select_replica`] has been asked already.
    Arrival(&'a Request, &'a View<'a>),
    Enqueue(&'a QueuedRequest, &'a View<'a>),
    Dequeue(QueueSeq),
    Dispatch(ReplicaIndex),
    ReplicaAdded(ReplicaIndex, &'a str),
    ReplicaRemoved(ReplicaIndex),
}

pub(crate) trait Policy: Debug + Send {
    /// Selects a replica for a request; `None` lets it wait for any.
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection>;

    /// Selects the queued request that a freed replica serves. `queued` is never empty, oldest request first.
    fn select_request(
        &self,
        replica: ReplicaIndex,
        queued: &mut dyn Iterator<Item = (QueueSeq, &QueuedRequest)>,
        view: &View<'_>,
        delayed: &mut DelayedRequests,
    ) -> Option<NextRequest> {
        let _ = (replica, view, delayed);
        queued.next().map(|(seq, _)| NextRequest::AnyReplica(seq))
    }

    /// The affinity replica of a request that is about to wait, among all replicas, where caches suggest one.
    fn find_affinity(&self, queued: &QueuedRequest, view: &View<'_>) -> Option<ReplicaIndex> {
        let _ = (queued, view);
        None
    }

    /// Whether a queued request would take a replica, as far as the policy has told. A dispatch of a later request to
    /// another one does not overtake it.
    fn would_take(&self, queued: &QueuedRequest, replica: ReplicaIndex) -> bool {
        queued
            .preferred
            .is_none_or(|preferred| preferred == replica)
    }

    /// Selects the replica to try when these have failed: another holder of `matched`, and then the least loaded one.
    fn select_fallback(
        &self,
        request: &Request,
        matched: Option<&PrefixMatch>,
        view: &View<'_>,
        failed: &[ReplicaIndex],
    ) -> Option<ReplicaIndex> {
        let share_min = self.rules().fallback_share_min;
        let is_long =
            |matched: &&PrefixMatch| request.fingerprint.share_at(matched.depth) >= share_min;
        matched
            .filter(is_long)
            .and_then(|matched| first_holder(matched, view, failed))
            .or_else(|| least_loaded(view, failed))
    }

    /// Scores a replica for a request, for explanations; more is better.
    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64;

    /// Costs that compare with those of peer regions; `None` for a policy that does not price replicas in seconds.
    fn region_costs(&self) -> Option<&dyn RegionCosts> {
        None
    }

    /// Follows a change of the pool.
    fn on_event(&mut self, event: PolicyEvent<'_>) {
        let _ = event;
    }

    fn rules(&self) -> PolicyRules {
        PolicyRules::default()
    }
}

/// Costs of a policy that compare with those of peer regions, in seconds.
pub(crate) trait RegionCosts {
    /// Cost of a prompt that no candidate holds, for peers.
    fn prompt_cost(&self, view: &View<'_>) -> Option<PromptCost>;

    /// Cost of a request on a replica, sent after a wait. `None` where the costs of peers leave out what matters to it.
    fn cost_here(
        &self,
        request: &Request,
        replica: ReplicaIndex,
        wait_s: f64,
        view: &View<'_>,
    ) -> Option<f64>;

    /// Cost of so many tokens to compute where a prompt has this cost, sent after a wait.
    fn cost_there(&self, cost: &PromptCost, tokens: f64, wait_s: f64, view: &View<'_>) -> f64;
}

impl PolicyName {
    /// The policy of this name. The seed feeds the policies that choose at random.
    pub(crate) fn build(self, seed: u64) -> Box<dyn Policy> {
        match self {
            Self::Isotherm => Box::new(isotherm::Isotherm),
            Self::DualMap => Box::new(dual_map::DualMap::default()),
            Self::PrefixTree => Box::new(prefix_tree::PrefixTree),
            Self::CacheAware => Box::new(cache_aware::CacheAware),
            Self::Preble => Box::new(preble::Preble),
            Self::MinTtft => Box::new(min_ttft::MinTtft),
            Self::ConsistentHash => Box::new(consistent_hash::ConsistentHash::default()),
            Self::RoundRobin => Box::new(round_robin::RoundRobin::default()),
            Self::Random => Box::new(random::Random(Pcg64::seed_from_u64(seed))),
            Self::LeastOutstanding => Box::new(least_outstanding::LeastOutstanding),
            Self::PowerOfTwo => Box::new(random::PowerOfTwo(Pcg64::seed_from_u64(seed))),
        }
    }
}

/// A policy of experiments, which no configuration names.
#[cfg(feature = "research")]
#[derive(Clone, Copy, Debug)]
pub enum ResearchPolicy {
    /// `dual_map` with parts of it switched off.
    Ablation(Ablation),
    /// Weighted scorers of endpoints (llm-d).
    Scorers(ScorerWeights),
    /// Sticky to a prefix until saturated, then the least uncached tokens in flight (llm-d).
    TokenLoad,
    /// The least product of new prefill tokens and requests in flight (LMetric).
    LMetric,
    /// A session's cache while it meets the objective, else the least prefill work (SMetric).
    SMetric,
    /// The least sum of prefill blocks and decode blocks (Dynamo).
    BlockCost,
}

#[cfg(feature = "research")]
impl ResearchPolicy {
    pub(crate) fn build(self) -> Box<dyn Policy> {
        match self {
            Self::Ablation(ablation) => Box::new(dual_map::DualMap::new(ablation)),
            Self::Scorers(weights) => Box::new(endpoint_scorers::EndpointScorers(weights)),
            Self::TokenLoad => Box::new(token_load::TokenLoad),
            Self::LMetric => Box::new(lmetric::LMetric),
            Self::SMetric => Box::new(smetric::SMetric),
            Self::BlockCost => Box::new(block_cost::BlockCost),
        }
    }
}

/// The candidate with the fewest outstanding requests; among equals the one whose last request is longest ago.
pub(crate) fn least_loaded(view: &View<'_>, except: &[ReplicaIndex]) -> Option<ReplicaIndex> {
    view.replicas
        .by_load()
        .find(|replica| view.candidates.contains(*replica) && !except.contains(replica))
}

fn least_loaded_holder(matched: &PrefixMatch, view: &View<'_>) -> Option<ReplicaIndex> {
    view.index
        .targets(matched, view.candidates)
        .min_by_key(|replica| rank(view, *replica))
}

/// The least loaded candidate that holds this prefix and has not failed.
fn first_holder(
    matched: &PrefixMatch,
    view: &View<'_>,
    failed: &[ReplicaIndex],
) -> Option<ReplicaIndex> {
    let is_open =
        |replica: &ReplicaIndex| view.candidates.contains(*replica) && !failed.contains(replica);
    if view.index.target_count(matched) >= HOLDERS_MANY.get() {
        // Most replicas hold such a prefix, like a system prompt, so one of the least loaded does.
        let first = view.replicas.by_load().take(LEAST_LOADED_MAX.get());
        let holder = first
            .filter(is_open)
            .find(|replica| view.index.has(matched, *replica));
        if holder.is_some() {
            return holder;
        }
    }
    view.index
        .targets(matched, view.candidates)
        .filter(is_open)
        .min_by_key(|replica| rank(view, *replica))
}

/// The longest prefix of the prompt that a candidate holds.
fn longest_match(request: &Request, view: &View<'_>) -> PrefixMatch {
    view.index
        .deepest(request.fingerprint.blocks(), view.candidates)
}

pub(crate) fn match_on(request: &Request, replica: ReplicaIndex, view: &View<'_>) -> PrefixMatch {
    view.index.deepest_of(request.fingerprint.blocks(), replica)
}

/// The share of the prompt that a replica holds, less a little for its load, which decides among equal matches.
fn match_less_load(request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
    let matched = match_on(request, replica, view);
    let load = f64::from(rank(view, replica).outstanding());
    request.fingerprint.share_at(matched.depth) - load / (1_000.0 + load) / 1_000.0
}

/// The candidate of the least cost for its uncached tokens, and the prefix that it holds; among equals the least loaded.
fn cheapest(
    request: &Request,
    view: &View<'_>,
    cost: impl Fn(ReplicaIndex, f64) -> f64,
) -> Option<(ReplicaIndex, PrefixMatch)> {
    let mut best: Option<(f64, ReplicaIndex, PrefixMatch)> = None;
    let blocks = request.fingerprint.blocks();
    view.index
        .each_deepest(blocks, view.candidates, |replica, matched| {
            let cost = cost(replica, uncached_tokens(request, matched.depth));
            let is_better = best.is_none_or(|(least, other, _)| {
                cost.total_cmp(&least)
                    .then_with(|| rank(view, replica).cmp(&rank(view, other)))
                    .is_lt()
            });
            if is_better {
                best = Some((cost, replica, *matched));
            }
        });
    best.map(|(_, replica, matched)| (replica, matched))
}

/// The candidate that computes the prompt soonest, and the prefix that it holds; for views of prefill replicas.
pub(crate) fn cheapest_prefiller(
    request: &Request,
    view: &View<'_>,
) -> Option<(ReplicaIndex, PrefixMatch)> {
    let allowed = filter_eligible(request, view.candidates, view);
    let view = View {
        candidates: &allowed,
        ..*view
    };
    cheapest(request, &view, |replica, uncached| {
        view.replicas.ttft_s(replica, uncached, view.now)
    })
}

/// Whether a request may be served by a replica, whether or not the replica is a candidate now.
pub(crate) fn may_serve(request: &Request, replica: ReplicaIndex, view: &View<'_>) -> bool {
    let subset = request.subset.as_deref();
    let listers = view.adapters.listers(request);
    listers.is_none_or(|listers| listers.contains(replica))
        && subset.is_none_or(|subset| {
            let id = view.replicas.id_of(replica);
            id.is_some_and(|id| subset.contains(&id))
        })
}

fn filter_eligible<'a>(
    request: &Request,
    set: &'a ReplicaSet,
    view: &View<'_>,
) -> Cow<'a, ReplicaSet> {
    let set = match view.adapters.listers(request) {
        Some(listers) if !set.is_within(listers) => Cow::Owned(set.intersection(listers)),
        _ => Cow::Borrowed(set),
    };
    let Some(subset) = request.subset.as_deref() else {
        return set;
    };
    let mut allowed = ReplicaSet::default();
    for replica in subset.iter().filter_map(|id| view.replicas.slot_of(*id)) {
        allowed.set(replica, set.contains(replica));
    }
    Cow::Owned(allowed)
}

/// How a replica compares by load: less is better.
fn rank(view: &View<'_>, replica: ReplicaIndex) -> Rank {
    view.replicas.rank(replica)
}

/// A replica's load as a score: more is better.
fn load_score(view: &View<'_>, replica: ReplicaIndex) -> f64 {
    -f64::from(rank(view, replica).outstanding())
}

/// Estimated number of prompt tokens to compute where the first `depth` blocks of the prompt are cached.
pub(crate) fn uncached_tokens(request: &Request, depth: usize) -> f64 {
    let share = request.fingerprint.share_at(depth).clamp(0.0, 1.0);
    f64::from(request.prompt_tokens) * (1.0 - share)
}
