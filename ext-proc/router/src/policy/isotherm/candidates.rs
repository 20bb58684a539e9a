//! The candidates of a request, without a price for every replica: a few holders of the longest prefix, the replica that served the
//! session last, holders of the adapter, and the least loaded replicas.
//!
//! The load of a replica is its queued prefill and the time that its requests in flight add to the cost: a replica with few
//! requests may have the longest prompts to compute.
//!
//! A replica with less of the prompt has more to compute, and an idle replica as fast as the fastest gives a lower bound of
//! that cost. The search ends once a candidate costs no more than the bound, mostly after one replica.

use smallvec::SmallVec;

use super::cost::{CandidateCost, CostModel};
use super::prompt_load::COMPARED_MAX;
use super::query::{CandidateQuery, MatchCost};
use crate::Request;
use crate::constant::constants;
use crate::index::PrefixMatch;
use crate::policy::View;
use crate::replica_index::{ReplicaIndex, ReplicaSet};

constants! {
    /// Replicas with the fewest requests, among which replicas are searched that are not priced yet.
    LEAST_LOADED_MAX: usize = 64;
}

/// The cheapest of the replicas that the request may go to now.
pub(super) fn cheapest_now(
    query: &CandidateQuery<'_>,
    cost_model: &CostModel<'_>,
) -> Option<CandidateCost> {
    let mut search = CandidateSearch {
        query,
        cost_model,
        best: None,
        priced: SmallVec::new(),
    };
    let unseen = search.price_holders();
    search.price_last_of_session();
    if let Some(unseen) = unseen {
        search.price_adapter_holders(&unseen);
        search.price_least_loaded(&unseen);
    }
    search.best
}

/// The replicas that a search has not seen, and a bound on the prefix that any of them holds.
struct Unseen {
    replicas: ReplicaSet,
    longest: PrefixMatch,
}

struct CandidateSearch<'a> {
    query: &'a CandidateQuery<'a>,
    cost_model: &'a CostModel<'a>,
    best: Option<CandidateCost>,
    priced: SmallVec<[ReplicaIndex; 64]>,
}

impl CandidateSearch<'_> {
    /// Prices the least loaded holders of the longest prefix; returns the other replicas, unless none of them can cost less.
    fn price_holders(&mut self) -> Option<Unseen> {
        let (query, view) = (self.query, self.cost_model.view);
        let (blocks, index) = (query.request.fingerprint.blocks(), &view.pool.caches.index);
        let mut replicas = view.candidates.clone();
        let mut longest = index.deepest_within(blocks, &query.known, &replicas);
        if longest.depth > 0 {
            let match_cost = MatchCost::of(longest, query, view);
            let load = self.cost_model.load_of_prompt(match_cost.uncached);
            let holders = some_holders(&longest, query.request, view.candidates, view);
            let seen = holders.inspect(|holder| {
                replicas.set(*holder, false);
            });
            for replica in load.least_loaded(seen, view).replicas() {
                self.price(replica, &match_cost);
            }
            if self.is_settled_for(&replicas) {
                return None;
            }
            longest = index.deepest_within(blocks, &longest, &replicas);
        }
        (!self.is_settled(longest.depth)).then_some(Unseen { replicas, longest })
    }

    /// Whether no replica that holds at most so many blocks can cost less than the best candidate.
    fn is_settled(&self, depth: usize) -> bool {
        let bound =
            |best: &CandidateCost| self.cost_model.lower_bound(self.query, depth) >= best.cost;
        self.best.as_ref().is_some_and(bound)
    }

    /// Whether none of these replicas can cost less, since none holds even the landmark. Cheaper than a search for the next match.
    fn is_settled_for(&self, unseen: &ReplicaSet) -> bool {
        let index = &self.cost_model.view.pool.caches.index;
        self.query.landmark.is_some_and(|landmark| {
            self.is_settled(landmark.depth.saturating_sub(1)) && !index.any_has(&landmark, unseen)
        })
    }

    fn price_last_of_session(&mut self) {
        let (query, view) = (self.query, self.cost_model.view);
        if let Some(replica) = query.session_at
            && view.candidates.contains(replica)
            && !self.priced.contains(&replica)
        {
            let blocks = query.request.fingerprint.blocks();
            let matched = view
                .pool
                .caches
                .index
                .deepest_of_within(blocks, &query.known, replica);
            self.price(replica, &MatchCost::of(matched, query, view));
        }
    }

    /// Prices the least loaded holders of the request's adapter.
    fn price_adapter_holders(&mut self, unseen: &Unseen) {
        let (query, view) = (self.query, self.cost_model.view);
        let Some(holders) = query.adapter_holders(view) else {
            return;
        };
        let blocks = query.request.fingerprint.blocks();
        let unseen_holders = holders.intersection(&unseen.replicas);
        let load = self
            .cost_model
            .load_of_prompt(query.request.uncached_tokens(unseen.longest.depth));
        for replica in load.least_loaded(unseen_holders.iter(), view).replicas() {
            let matched =
                view.pool
                    .caches
                    .index
                    .deepest_of_within(blocks, &unseen.longest, replica);
            self.price(replica, &MatchCost::of(matched, query, view));
        }
    }

    fn price_least_loaded(&mut self, unseen: &Unseen) {
        let (query, view) = (self.query, self.cost_model.view);
        let blocks = query.request.fingerprint.blocks();
        let least = view.pool.replicas.by_load().take(LEAST_LOADED_MAX.get());
        let idle = least.filter(|replica| unseen.replicas.contains(*replica));
        let uncached = query.request.uncached_tokens(unseen.longest.depth);
        let load = self.cost_model.load_of_prompt(uncached);
        let mut match_cost: Option<MatchCost> = None;
        let mut least_loaded = load.least_loaded(idle.take(COMPARED_MAX), view);
        if self.best.is_none() && least_loaded.is_empty() {
            // A restricted request may go to none of the replicas with the fewest requests.
            least_loaded = load.least_loaded(unseen.replicas.iter().take(COMPARED_MAX), view);
        }
        for replica in least_loaded.replicas() {
            let matched =
                view.pool
                    .caches
                    .index
                    .deepest_of_within(blocks, &unseen.longest, replica);
            let same = match_cost.filter(|match_cost| match_cost.matched == matched);
            let match_cost =
                match_cost.insert(same.unwrap_or_else(|| MatchCost::of(matched, query, view)));
            self.price(replica, match_cost);
        }
    }

    fn price(&mut self, replica: ReplicaIndex, match_cost: &MatchCost) {
        self.priced.push(replica);
        let known = self.best.map(|best| best.cost);
        let cheaper = self
            .cost_model
            .price_below(self.query, replica, match_cost, known);
        self.best = cheaper.or(self.best);
    }
}

/// Holders of a prefix in a set, to compare by load: at most [`COMPARED_MAX`]. The prompt's last hash selects the first one, so
/// that prompts which share no more than a system prompt spread over its holders.
fn some_holders<'a>(
    matched: &PrefixMatch,
    request: &Request,
    among: &'a ReplicaSet,
    view: &View<'a>,
) -> impl Iterator<Item = ReplicaIndex> + 'a {
    let last = request.fingerprint.blocks().last();
    let start = last.map_or(0, |block| block.hash);
    let holders = view.pool.caches.index.targets_from(matched, start, among);
    holders.take(COMPARED_MAX)
}

/// The affinity replica of a request, priced after a wait for it: the cheapest busy holder of the longest prefix, or of the
/// adapter. No busy replica holds a prefix longer than `longest`. `None` if none costs less than `cost_max`.
pub(super) fn affinity_replica(
    query: &CandidateQuery<'_>,
    longest: &PrefixMatch,
    cost_model: &CostModel<'_>,
    cost_max: f64,
) -> Option<CandidateCost> {
    let view = cost_model.view;
    let busy = &*view.eligible(query.request, &cost_model.busy);
    let blocks = query.request.fingerprint.blocks();
    let matched = view.pool.caches.index.deepest_within(blocks, longest, busy);
    if cost_model.lower_bound(query, matched.depth) >= cost_max {
        return None;
    }
    let mut cheapest: Option<CandidateCost> = None;
    let mut price = |replica, match_cost: &MatchCost| {
        let known = cheapest.map_or(cost_max, |best| best.cost);
        let cheaper = price_after_wait(query, replica, match_cost, cost_model, known);
        cheapest = cheaper.or(cheapest);
    };
    if matched.depth > 0 {
        let match_cost = MatchCost::of(matched, query, view);
        let holders = some_holders(&matched, query.request, busy, view);
        let load = cost_model.load_of_prompt(match_cost.uncached);
        let least_loaded = load.least_loaded(holders, view).replicas();
        least_loaded.for_each(|replica| price(replica, &match_cost));
    }
    if let Some(holders) = query.adapter_holders(view) {
        let load = cost_model.load_of_prompt(query.request.uncached_tokens(matched.depth));
        for replica in load
            .least_loaded(holders.intersection(busy).iter(), view)
            .replicas()
        {
            let matched = view
                .pool
                .caches
                .index
                .deepest_of_within(blocks, &matched, replica);
            price(replica, &MatchCost::of(matched, query, view));
        }
    }
    cheapest
}

/// Prices a busy replica after a wait for it; `None` unless it costs less than `cost_max`.
fn price_after_wait(
    query: &CandidateQuery<'_>,
    replica: ReplicaIndex,
    match_cost: &MatchCost,
    cost_model: &CostModel<'_>,
    cost_max: f64,
) -> Option<CandidateCost> {
    let waiting = query.after_turn(cost_model.view.pool.turn_s(replica));
    cost_model.price_below(&waiting, replica, match_cost, Some(cost_max))
}
