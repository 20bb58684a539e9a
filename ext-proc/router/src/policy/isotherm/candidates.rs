//! PeerHandle a request may go to, without looking at every replica.
//!
//! A replica is worth a look for what it has of the prompt or for having little to do. So those with the longest matches are
//! looked at, a few at each of a few depths, then the one that served the session last, then those with least to do: some
//! twenty, however large the pool.
//!
//! Mostly it is one. Whoever has less of the prompt has more to compute, and an idle replica as fast as the fastest says how much
//! that costs at least: once an offer costs no more, nobody else is looked at. So a conversation's next turn asks its own
//! replica, and that is that.

use smallvec::SmallVec;

use super::cost::{CandidateCost, CostModel};
use super::query::{CandidateQuery, MatchCost};
use crate::index::PrefixMatch;
use crate::policy::{View, load_key, that_may_serve};
use crate::replica::Rank;
use crate::replica_index::{ReplicaIndex, ReplicaSet};

/// How many depths of match are looked at.
const DEPTHS_MAX: usize = 4;
/// How many replicas at each of them, and of those with least to do.
const EACH_MAX: usize = 4;
/// How many replicas that have the same of a prompt are compared by load.
const HOLDERS_MAX: usize = 32;
/// How many of those with least to do are searched for one that has nothing of it.
const LEAST_MAX: usize = 64;
/// How much of the time that a request has waited for a busy replica it expects to wait still, whatever the estimate says.
const DISTRUST: f64 = 0.5;
/// The share of those that wait for a replica that are taken to get there in the end; others go elsewhere before.
const FAITHFUL: f64 = 0.5;
/// The shortest wait for a replica that is not available, in seconds: until its next probe, about.
const WAIT_S_MIN: f64 = 0.02;
/// How long a replica is taken to be busy with a request before any has ended, in seconds.
const SERVICE_S: f64 = 1.0;

/// The best of those that it may go to now.
pub(super) fn best_now(
    query: &CandidateQuery<'_>,
    cost_model: &CostModel<'_>,
) -> Option<CandidateCost> {
    let mut best = Best::new(query, cost_model);
    let rest = best.ask_holders();
    best.ask_where_the_session_was();
    if let Some(rest) = rest {
        best.ask_idle(&rest);
    }
    best.candidate
}

/// Those that were not looked at.
struct Rest {
    slots: ReplicaSet,
    /// None of them has more of the prompt than this.
    most: PrefixMatch,
}

/// The first few in load order of those that are entered.
#[derive(Debug)]
struct First([Rank; EACH_MAX]);

impl Default for First {
    fn default() -> Self {
        Self([Rank::LAST; EACH_MAX])
    }
}

impl First {
    /// Moves it up to its place without a branch: which way one goes here is as good as random, and a sort that guesses it
    /// took longer than all prices.
    fn enter(&mut self, mut rank: Rank) {
        for place in &mut self.0 {
            (*place, rank) = (rank.min(*place), rank.max(*place));
        }
    }

    /// In order; behind those that were entered, nobody.
    fn slots(&self) -> impl Iterator<Item = ReplicaIndex> + '_ {
        self.0.iter().map(|rank| rank.slot())
    }
}

/// The best offer so far.
struct Best<'a> {
    query: &'a CandidateQuery<'a>,
    cost_model: &'a CostModel<'a>,
    candidate: Option<CandidateCost>,
    visited: SmallVec<[ReplicaIndex; DEPTHS_MAX * EACH_MAX + 1]>,
}

impl<'a> Best<'a> {
    fn new(query: &'a CandidateQuery<'a>, cost_model: &'a CostModel<'a>) -> Self {
        Self {
            query,
            cost_model,
            candidate: None,
            visited: SmallVec::new(),
        }
    }

    /// Those that have most of the prompt, and whoever is left then; nobody, when none of those can offer less.
    fn ask_holders(&mut self) -> Option<Rest> {
        let (query, view) = (self.query, self.cost_model.view);
        let blocks = query.request.fingerprint.blocks();
        let mut rest = Rest {
            slots: view.candidates.clone(),
            most: query.known,
        };
        let mut rounds = DEPTHS_MAX;
        'depths: while rounds > 0 {
            let matched = view.index.deepest_within(blocks, &rest.most, &rest.slots);
            rest.most = matched;
            if self.is_settled(matched.depth) {
                return None;
            }
            if matched.depth == 0 {
                break;
            }
            let match_cost = MatchCost::of(matched, query, view);
            let mut all = view.index.all_targets(&matched);
            // Where more have it than are compared at once, the next round goes on behind these.
            while rounds > 0 {
                let fresh = all.by_ref().filter(|slot| rest.slots.set(*slot, false));
                let mut holders = First::default();
                let mut many = 0;
                for slot in fresh.take(HOLDERS_MAX) {
                    holders.enter(view.replicas.rank(slot));
                    many += 1;
                }
                if many == 0 {
                    continue 'depths;
                }
                rounds -= 1;
                for slot in holders.slots().take(many) {
                    self.consider(slot, &match_cost);
                }
                if many < HOLDERS_MAX {
                    if self.is_settled_for(&rest.slots) {
                        return None;
                    }
                    rest.most = view.index.shorter(&matched);
                    break;
                }
            }
        }
        Some(rest)
    }

    /// Whether nobody who has no more of the prompt than this can offer less.
    fn is_settled(&self, depth: usize) -> bool {
        let candidate = self.candidate.as_ref();
        candidate
            .is_some_and(|candidate| self.cost_model.floor(self.query, depth) >= candidate.cost)
    }

    /// Whether that is so of all these, since none of them has even the landmark. The next one to have anything need not be
    /// searched for then, which waits for the memory twice.
    fn is_settled_for(&self, rest: &ReplicaSet) -> bool {
        let index = self.cost_model.view.index;
        self.query.landmark.is_some_and(|landmark| {
            self.is_settled(landmark.depth.saturating_sub(1)) && !index.any_has(&landmark, rest)
        })
    }

    fn ask_where_the_session_was(&mut self) {
        let (query, view) = (self.query, self.cost_model.view);
        // One that was asked already offers the same again.
        if let Some(slot) = query.session_at
            && view.candidates.contains(slot)
            && !self.visited.contains(&slot)
        {
            let blocks = query.request.fingerprint.blocks();
            let matched = view.index.deepest_of_within(blocks, &query.known, slot);
            self.consider(slot, &MatchCost::of(matched, query, view));
        }
    }

    /// Those with least to do of whoever is left.
    fn ask_idle(&mut self, rest: &Rest) {
        let (query, view) = (self.query, self.cost_model.view);
        let blocks = query.request.fingerprint.blocks();
        let least = view.replicas.by_load().take(LEAST_MAX);
        let idle = least.filter(|slot| rest.slots.contains(*slot));
        let mut match_cost: Option<MatchCost> = None;
        for slot in idle.take(EACH_MAX) {
            let matched = view.index.deepest_of_within(blocks, &rest.most, slot);
            let same = match_cost.filter(|match_cost| match_cost.matched == matched);
            let match_cost =
                match_cost.insert(same.unwrap_or_else(|| MatchCost::of(matched, query, view)));
            self.consider(slot, match_cost);
        }
    }

    fn consider(&mut self, slot: ReplicaIndex, match_cost: &MatchCost) {
        self.visited.push(slot);
        let candidate =
            self.cost_model
                .better_offer(self.query, slot, match_cost, self.candidate.as_ref());
        self.candidate = candidate.or(self.candidate);
    }
}

/// Of the trusted replicas that are busy, the one that has most of the prompt, with what it costs to wait for it.
pub(super) fn home_of(
    query: &CandidateQuery<'_>,
    cost_model: &CostModel<'_>,
) -> Option<CandidateCost> {
    let view = cost_model.view;
    let busy = &*that_may_serve(query.request, &cost_model.busy, view);
    let matched = view
        .index
        .deepest_within(query.request.fingerprint.blocks(), &query.known, busy);
    if matched.depth == 0 {
        return None;
    }
    let match_cost = MatchCost::of(matched, query, view);
    view.index
        .targets(&matched, busy)
        .take(EACH_MAX)
        .map(|slot| {
            let wait_s = wait_s(slot, view).max(DISTRUST * query.waited.delayed_s);
            cost_model.offer_of(query, slot, &match_cost, query.waited.after(wait_s))
        })
        .min_by(|a, b| a.cost.total_cmp(&b.cost))
}

/// How long until a replica can be sent a request, beyond its backlog, behind those that wait for it already.
#[expect(clippy::cast_precision_loss, reason = "a number of requests")]
fn wait_s(slot: ReplicaIndex, view: &View<'_>) -> f64 {
    let ahead = view.queue.preferring(slot) as f64;
    let outstanding = f64::from(load_key(view, slot).0).max(1.0);
    let turn = if view.replicas.is_full(slot) {
        view.service_s.unwrap_or(SERVICE_S) / outstanding
    } else {
        WAIT_S_MIN + view.replicas.work_s(view.now)
    };
    (1.0 + FAITHFUL * ahead) * turn
}
