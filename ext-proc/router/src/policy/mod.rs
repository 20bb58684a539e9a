//! Policies: who goes where. A module each, one trait, one conformance suite over all of them.
//!
//! A policy is asked two questions. *Where should this request go?* It may answer: let it wait for that replica.
//! And *which waiting request should this freed replica take?* Plain policies answer the second with first come,
//! first served. Whatever a policy answers, the core sees to it that nobody waits for ever, and that nobody who can
//! still be served in time is passed over more than a bounded number of times.
//!
//! Asking changes nothing, so that an explanation is what would really happen: a policy that has a state (whose
//! turn it is, the next lot) moves on when it is told that a request was placed.

mod cache_aware;
mod consistent_hash;
mod dual_map;
mod isotherm;
mod least_outstanding;
mod min_ttft;
mod name;
mod power_of_two;
mod preble;
mod prefix_tree;
mod random;
mod round_robin;
mod seeded_rng;

use core::fmt::Debug;
use std::borrow::Cow;

use smallvec::SmallVec;

#[cfg(feature = "research")]
pub use dual_map::{Ablation, CandidateRule};
pub use name::{PolicyName, UnknownPolicy};

use crate::index::{Answers, PrefixIndex, PrefixMatch, Sessions};
use crate::queue::{OVERTAKES_MAX, Queue, QueueSeq, QueuedRequest};
use crate::replica::{LoadKey, Replicas};
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::{Reason, Request, Time};

/// How many waiting requests are looked at for one freed replica. When more than these decline it, the oldest has to take it.
pub(crate) const LOOKED_AT_MAX: usize = 64;

/// So many replicas that have the same of a prompt are not all compared by load,
const HOLDERS_MANY: usize = 32;
/// if one is among so many with least to do.
const FIRST_MAX: usize = 16;

/// What a policy may look at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    /// The replicas, with their load.
    pub(crate) replicas: &'a Replicas,
    /// Who was sent which prefix.
    pub(crate) index: &'a PrefixIndex,
    /// Who may be chosen: available, and allowed for this request. Never empty.
    pub(crate) candidates: &'a ReplicaSet,
    /// Who waits.
    pub(crate) queue: &'a Queue,
    /// How long a replica is busy with a request, in seconds; once one has ended.
    pub(crate) service_s: Option<f64>,
    /// How soon a first token is wanted, in seconds.
    pub(crate) ttft_slo_s: f64,
    /// How long the request has waited, in seconds.
    pub(crate) waited_s: f64,
    /// How long the request has been waiting for one replica although others were free, in seconds.
    pub(crate) delayed_s: f64,
    /// What prompts were answered with: engines keep that, too.
    pub(crate) answers: &'a Answers,
    /// Where sessions were served last.
    pub(crate) sessions: &'a Sessions,
    /// What time it is.
    pub(crate) now: Time,
}

/// Where a request should go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Selection {
    /// To this candidate, now.
    Dispatch {
        /// Which one.
        slot: ReplicaIndex,
        /// Why.
        reason: Reason,
        /// What it has of the prompt, where the policy looked.
        matched: Option<PrefixMatch>,
    },
    /// Nowhere yet: it waits for this replica, although others are free.
    WaitFor(ReplicaIndex),
}

/// Who does not want a freed replica, and which one each waits for instead.
pub(crate) type DelayedRequests = SmallVec<[(QueueSeq, ReplicaIndex); 8]>;

/// Which waiting request a freed replica takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NextRequest {
    /// It is the turn of this one: [`Policy::select_replica`] says where it goes, among all available replicas.
    AnyReplica(QueueSeq),
    /// This one goes to the freed replica.
    ThisReplica {
        /// Which one.
        seq: QueueSeq,
        /// Why.
        reason: Reason,
        /// What the replica has of the prompt, where the policy looked.
        matched: Option<PrefixMatch>,
    },
}

/// Who goes where.
pub(crate) trait Policy: Debug + Send {
    /// Where should this request go?
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection>;

    /// A request arrived, and [`Self::select_replica`] was asked about it. There need be no candidate.
    fn on_arrival(&mut self, request: &Request, view: &View<'_>) {
        let _ = (request, view);
    }

    /// A request waits from now on. There need be no candidate.
    fn on_enqueue(&mut self, queued: &QueuedRequest, view: &View<'_>) {
        let _ = (queued, view);
    }

    /// One that waited does not any more, be it that it goes or that it is refused.
    fn on_dequeue(&mut self, seq: QueueSeq) {
        let _ = seq;
    }

    /// Switches parts of it off.
    #[cfg(feature = "research")]
    fn ablate(&mut self, ablation: Ablation) {
        let _ = ablation;
    }

    /// A request was placed where [`Self::select_replica`] said.
    fn on_dispatch(&mut self, slot: ReplicaIndex) {
        let _ = slot;
    }

    /// Which of the waiting requests (oldest first, never none) should this freed replica take?
    fn select_request(
        &self,
        slot: ReplicaIndex,
        queued: &mut dyn Iterator<Item = (QueueSeq, &QueuedRequest)>,
        view: &View<'_>,
        delayed: &mut DelayedRequests,
    ) -> Option<NextRequest> {
        let _ = (slot, view, delayed);
        queued.next().map(|(seq, _)| NextRequest::AnyReplica(seq))
    }

    /// How often a waiting request may see a later one go first to a replica that could have served it.
    fn max_overtakes(&self) -> u32 {
        OVERTAKES_MAX
    }

    /// Whether those that cannot be served in time any more come behind the others, and may be passed over without bound:
    /// where more is asked than the fleet can do, who comes first is then served in time at least.
    fn past_slo_last(&self) -> bool {
        false
    }

    /// Who comes next when these fail? `matched` is what [`Self::select_replica`] gave. By default whoever has least to do.
    fn select_fallback(
        &self,
        request: &Request,
        matched: Option<&PrefixMatch>,
        view: &View<'_>,
        failed: &[ReplicaIndex],
    ) -> Option<ReplicaIndex> {
        let _ = (request, matched);
        least_loaded(view, failed)
    }

    /// What this replica is worth to this request; more is better. For people.
    fn score(&self, request: &Request, slot: ReplicaIndex, view: &View<'_>) -> f64;

    /// A replica of this name joined.
    fn on_replica_added(&mut self, slot: ReplicaIndex, name: &str) {
        let _ = (slot, name);
    }

    /// It left.
    fn on_replica_removed(&mut self, slot: ReplicaIndex, name: &str) {
        let _ = (slot, name);
    }
}

impl PolicyName {
    /// The policy of this name. The seed is for those that draw lots.
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
            Self::Random => Box::new(random::Random::new(seed)),
            Self::LeastOutstanding => Box::new(least_outstanding::LeastOutstanding),
            Self::PowerOfTwo => Box::new(power_of_two::PowerOfTwo::new(seed)),
        }
    }
}

/// The candidate with the fewest outstanding requests; among equals the one that has waited longest for one,
/// so that an idle fleet is used in turn.
pub(crate) fn least_loaded(view: &View<'_>, except: &[ReplicaIndex]) -> Option<ReplicaIndex> {
    view.replicas
        .by_load()
        .find(|slot| view.candidates.contains(*slot) && !except.contains(slot))
}

/// PeerHandle to try when these have failed, for policies that look for the prefix: others that hold it first.
fn next_holder(
    matched: Option<&PrefixMatch>,
    view: &View<'_>,
    failed: &[ReplicaIndex],
) -> Option<ReplicaIndex> {
    matched
        .and_then(|matched| first_holder(matched, view, failed))
        .or_else(|| least_loaded(view, failed))
}

/// The first one in load order of those that have this and have not failed.
fn first_holder(
    matched: &PrefixMatch,
    view: &View<'_>,
    failed: &[ReplicaIndex],
) -> Option<ReplicaIndex> {
    let is_one = |slot: &ReplicaIndex| view.candidates.contains(*slot) && !failed.contains(slot);
    if view.index.target_count(matched) >= HOLDERS_MANY {
        // Most have it, like a system prompt, so one of the first in load order does.
        let first = view.replicas.by_load().take(FIRST_MAX);
        let holder = first
            .filter(is_one)
            .find(|slot| view.index.has(matched, *slot));
        if holder.is_some() {
            return holder;
        }
    }
    view.index
        .targets(matched, view.candidates)
        .filter(is_one)
        .min_by_key(|slot| load_key(view, *slot))
}

/// The share of the prompt that a replica has, less a little for its load: what decides among equal matches.
fn match_less_load(request: &Request, slot: ReplicaIndex, view: &View<'_>) -> f64 {
    let matched = view.index.deepest_of(request.fingerprint.blocks(), slot);
    let load = f64::from(load_key(view, slot).0);
    request.fingerprint.share_at(matched.depth) - load / (1_000.0 + load) / 1_000.0
}

/// The candidate that costs least, and what it has of the prompt. `cost` is given how many of the prompt's tokens a
/// candidate would have to compute. Among equals the first in load order.
fn cheapest(
    request: &Request,
    view: &View<'_>,
    cost: impl Fn(ReplicaIndex, f64) -> f64,
) -> Option<(ReplicaIndex, PrefixMatch)> {
    let mut best: Option<(f64, ReplicaIndex, PrefixMatch)> = None;
    let blocks = request.fingerprint.blocks();
    view.index
        .each_deepest(blocks, view.candidates, |slot, matched| {
            let cost = cost(slot, uncached_tokens(request, matched.depth));
            let is_better = best.is_none_or(|(least, other, _)| {
                cost.total_cmp(&least)
                    .then_with(|| load_key(view, slot).cmp(&load_key(view, other)))
                    .is_lt()
            });
            if is_better {
                best = Some((cost, slot, *matched));
            }
        });
    best.map(|(_, slot, matched)| (slot, matched))
}

/// Whether a request may be served by a replica that is not among the candidates, should it become free.
fn may_serve(request: &Request, slot: ReplicaIndex, view: &View<'_>) -> bool {
    let subset = request.subset.as_deref();
    subset.is_none_or(|subset| {
        let id = view.replicas.id_of(slot);
        id.is_some_and(|id| subset.contains(&id))
    })
}

/// Those of a set that may serve a request.
fn that_may_serve<'a>(
    request: &Request,
    set: &'a ReplicaSet,
    view: &View<'_>,
) -> Cow<'a, ReplicaSet> {
    let Some(subset) = request.subset.as_deref() else {
        return Cow::Borrowed(set);
    };
    let mut those = ReplicaSet::default();
    for slot in subset.iter().filter_map(|id| view.replicas.slot_of(*id)) {
        those.set(slot, set.contains(slot));
    }
    Cow::Owned(those)
}

/// How a replica compares by load: less is better.
fn load_key(view: &View<'_>, slot: ReplicaIndex) -> LoadKey {
    view.replicas.load_key(slot)
}

/// A replica's load as a score: more is better.
fn load_score(view: &View<'_>, slot: ReplicaIndex) -> f64 {
    -f64::from(load_key(view, slot).0)
}

/// How many tokens of a prompt have to be computed where its first `depth` blocks are cached, by estimate.
pub(crate) fn uncached_tokens(request: &Request, depth: usize) -> f64 {
    let share = request.fingerprint.share_at(depth).clamp(0.0, 1.0);
    f64::from(request.prompt_tokens) * (1.0 - share)
}
