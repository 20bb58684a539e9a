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
mod lots;
mod min_ttft;
mod name;
mod power_of_two;
mod preble;
mod prefix_tree;
mod random;
mod round_robin;

use core::fmt::Debug;
use std::borrow::Cow;

use smallvec::SmallVec;

#[cfg(feature = "research")]
pub use dual_map::{Ablation, Selection};
pub use name::{PolicyName, UnknownPolicy};

use crate::index::{Answers, Match, PrefixIndex, Sessions};
use crate::queue::{PASSED_OVER_MAX, Place, Queue, Waiting};
use crate::replica::{Fleet, LoadKey};
use crate::slots::{Slot, SlotSet};
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
    pub(crate) fleet: &'a Fleet,
    /// Who was sent which prefix.
    pub(crate) index: &'a PrefixIndex,
    /// Who may be chosen: available, and allowed for this request. Never empty.
    pub(crate) candidates: &'a SlotSet,
    /// Who waits.
    pub(crate) queue: &'a Queue,
    /// How long a replica is busy with a request, in seconds; once one has ended.
    pub(crate) service_s: Option<f64>,
    /// How soon a first token is wanted, in seconds.
    pub(crate) ttft_slo_s: f64,
    /// How long the request has waited, in seconds.
    pub(crate) waited_s: f64,
    /// How long the request has been waiting for one replica although others were free, in seconds.
    pub(crate) declined_s: f64,
    /// What prompts were answered with: engines keep that, too.
    pub(crate) answers: &'a Answers,
    /// Where sessions were served last.
    pub(crate) sessions: &'a Sessions,
    /// What time it is.
    pub(crate) now: Time,
}

/// Where a request should go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Placement {
    /// To this candidate, now.
    Now {
        /// Which one.
        slot: Slot,
        /// Why.
        reason: Reason,
        /// What it has of the prompt, where the policy looked.
        found: Option<Match>,
    },
    /// Nowhere yet: it waits for this replica, although others are free.
    WaitFor(Slot),
}

/// Who does not want a freed replica, and which one each waits for instead.
pub(crate) type Declined = SmallVec<[(Place, Slot); 8]>;

/// Which waiting request a freed replica takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Taken {
    /// It is the turn of this one: [`Policy::place`] says where it goes, among all available replicas.
    Turn(Place),
    /// This one goes to the freed replica.
    Here {
        /// Which one.
        place: Place,
        /// Why.
        reason: Reason,
        /// What the replica has of the prompt, where the policy looked.
        found: Option<Match>,
    },
}

/// Who goes where.
pub(crate) trait Policy: Debug + Send {
    /// Where should this request go?
    fn place(&self, request: &Request, view: &View<'_>) -> Option<Placement>;

    /// A request arrived, and [`Self::place`] was asked about it. There need be no candidate.
    fn arrived(&mut self, request: &Request, view: &View<'_>) {
        let _ = (request, view);
    }

    /// A request waits from now on. There need be no candidate.
    fn waits(&mut self, waiting: &Waiting, view: &View<'_>) {
        let _ = (waiting, view);
    }

    /// One that waited does not any more, be it that it goes or that it is refused.
    fn gone(&mut self, place: Place) {
        let _ = place;
    }

    /// Switches parts of it off.
    #[cfg(feature = "research")]
    fn ablate(&mut self, ablation: Ablation) {
        let _ = ablation;
    }

    /// A request was placed where [`Self::place`] said.
    fn placed(&mut self, slot: Slot) {
        let _ = slot;
    }

    /// Which of the waiting requests (oldest first, never none) should this freed replica take?
    fn take(
        &self,
        slot: Slot,
        waiting: &mut dyn Iterator<Item = (Place, &Waiting)>,
        view: &View<'_>,
        declined: &mut Declined,
    ) -> Option<Taken> {
        let _ = (slot, view, declined);
        waiting.next().map(|(place, _)| Taken::Turn(place))
    }

    /// How often a waiting request may see a later one go first to a replica that could have served it.
    fn patience(&self) -> u32 {
        PASSED_OVER_MAX
    }

    /// Whether those that cannot be served in time any more come behind the others, and may be passed over without bound:
    /// where more is asked than the fleet can do, who comes first is then served in time at least.
    fn puts_late_last(&self) -> bool {
        false
    }

    /// Who comes next when these fail? `found` is what [`Self::place`] gave. By default whoever has least to do.
    fn next_best(
        &self,
        request: &Request,
        found: Option<&Match>,
        view: &View<'_>,
        failed: &[Slot],
    ) -> Option<Slot> {
        let _ = (request, found);
        least_loaded(view, failed)
    }

    /// What this replica is worth to this request; more is better. For people.
    fn score(&self, request: &Request, slot: Slot, view: &View<'_>) -> f64;

    /// A replica of this name joined.
    fn joined(&mut self, slot: Slot, name: &str) {
        let _ = (slot, name);
    }

    /// It left.
    fn left(&mut self, slot: Slot, name: &str) {
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
pub(crate) fn least_loaded(view: &View<'_>, except: &[Slot]) -> Option<Slot> {
    view.fleet
        .by_load()
        .find(|slot| view.candidates.contains(*slot) && !except.contains(slot))
}

/// Whom to try when these have failed, for policies that look for the prefix: others that hold it first.
fn next_holder(found: Option<&Match>, view: &View<'_>, failed: &[Slot]) -> Option<Slot> {
    found
        .and_then(|found| first_holder(found, view, failed))
        .or_else(|| least_loaded(view, failed))
}

/// The first one in load order of those that have this and have not failed.
fn first_holder(found: &Match, view: &View<'_>, failed: &[Slot]) -> Option<Slot> {
    let is_one = |slot: &Slot| view.candidates.contains(*slot) && !failed.contains(slot);
    if view.index.target_count(found) >= HOLDERS_MANY {
        // Most have it, like a system prompt, so one of the first in load order does.
        let first = view.fleet.by_load().take(FIRST_MAX);
        let holder = first
            .filter(is_one)
            .find(|slot| view.index.has(found, *slot));
        if holder.is_some() {
            return holder;
        }
    }
    view.index
        .targets(found, view.candidates)
        .filter(is_one)
        .min_by_key(|slot| load_key(view, *slot))
}

/// The share of the prompt that a replica has, less a little for its load: what decides among equal matches.
fn match_less_load(request: &Request, slot: Slot, view: &View<'_>) -> f64 {
    let found = view.index.deepest_of(request.fingerprint.blocks(), slot);
    let load = f64::from(load_key(view, slot).0);
    request.fingerprint.share_at(found.depth) - load / (1_000.0 + load) / 1_000.0
}

/// The candidate that costs least, and what it has of the prompt. `cost` is given how many of the prompt's tokens a
/// candidate would have to compute. Among equals the first in load order.
fn cheapest(
    request: &Request,
    view: &View<'_>,
    cost: impl Fn(Slot, f64) -> f64,
) -> Option<(Slot, Match)> {
    let mut best: Option<(f64, Slot, Match)> = None;
    let blocks = request.fingerprint.blocks();
    view.index
        .each_deepest(blocks, view.candidates, |slot, found| {
            let cost = cost(slot, uncached_tokens(request, found.depth));
            let is_better = best.is_none_or(|(least, other, _)| {
                cost.total_cmp(&least)
                    .then_with(|| load_key(view, slot).cmp(&load_key(view, other)))
                    .is_lt()
            });
            if is_better {
                best = Some((cost, slot, *found));
            }
        });
    best.map(|(_, slot, found)| (slot, found))
}

/// Whether a request may be served by a replica that is not among the candidates, should it become free.
fn may_serve(request: &Request, slot: Slot, view: &View<'_>) -> bool {
    let subset = request.subset.as_deref();
    subset.is_none_or(|subset| {
        let id = view.fleet.id_of(slot);
        id.is_some_and(|id| subset.contains(&id))
    })
}

/// Those of a set that may serve a request.
fn that_may_serve<'a>(request: &Request, set: &'a SlotSet, view: &View<'_>) -> Cow<'a, SlotSet> {
    let Some(subset) = request.subset.as_deref() else {
        return Cow::Borrowed(set);
    };
    let mut those = SlotSet::default();
    for slot in subset.iter().filter_map(|id| view.fleet.slot_of(*id)) {
        those.set(slot, set.contains(slot));
    }
    Cow::Owned(those)
}

/// How a replica compares by load: less is better.
fn load_key(view: &View<'_>, slot: Slot) -> LoadKey {
    view.fleet.load_key(slot)
}

/// A replica's load as a score: more is better.
fn load_score(view: &View<'_>, slot: Slot) -> f64 {
    -f64::from(load_key(view, slot).0)
}

/// How many tokens of a prompt have to be computed where its first `depth` blocks are cached, by estimate.
pub(crate) fn uncached_tokens(request: &Request, depth: usize) -> f64 {
    let share = request.fingerprint.share_at(depth).clamp(0.0, 1.0);
    f64::from(request.prompt_tokens) * (1.0 - share)
}
