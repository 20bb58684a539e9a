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

use super::asked::{Asked, Having, Patience};
use crate::index::Match;
use crate::policy::{View, load_key, uncached_tokens};
use crate::slots::{Slot, SlotSet};

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
pub(super) struct Weigher<'a> {
    pub(super) view: &'a View<'a>,
    /// Trusted replicas that are not available.
    pub(super) busy: SlotSet,
    /// Prompts that make each other wait, for each second that a replica is busy.
    delayed_per_busy_s: f64,
    /// Requests that wait here for each replica.
    waiting_for_each: f64,
}

/// What it costs to send a request to a replica.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    /// The replica.
    pub(super) slot: Slot,
    /// What it costs, in seconds.
    pub(super) cost: f64,
    /// Time to first token from when it is sent, in seconds.
    pub(super) ttft_s: f64,
    /// What the replica has of the prompt.
    pub(super) found: Match,
}

impl<'a> Weigher<'a> {
    #[expect(
        clippy::cast_precision_loss,
        reason = "numbers of requests and replicas"
    )]
    pub(super) fn new(view: &'a View<'a>) -> Self {
        let (requests_per_s, utilisation) = view.fleet.rates(view.now);
        let spare = 1.0 - utilisation.min(UTILISATION_MAX);
        Self {
            view,
            busy: view.fleet.trusted().without(view.candidates),
            delayed_per_busy_s: requests_per_s / spare,
            waiting_for_each: view.queue.len() as f64 / view.fleet.staying().len().max(1) as f64,
        }
    }

    /// What a replica offers of which it is not known yet what it has of the prompt.
    pub(super) fn offer(&self, asked: &Asked<'_>, slot: Slot) -> Offer {
        let blocks = asked.request.fingerprint.blocks();
        let index = self.view.index;
        let found = index.deepest_of_within(blocks, &asked.known, slot);
        let having = Having::of(found, asked, self.view);
        self.offer_of(asked, slot, &having, asked.patience)
    }

    /// What one offers that has this of the prompt, when it is sent the request after so long.
    pub(super) fn offer_of(
        &self,
        asked: &Asked<'_>,
        slot: Slot,
        having: &Having,
        patience: Patience,
    ) -> Offer {
        let tokens = having.uncached_on(slot, asked, self.view);
        self.priced(slot, having.found, tokens, patience)
    }

    /// The same of one that is sent it now, unless that costs no less than the `other` offer.
    pub(super) fn better_offer(
        &self,
        asked: &Asked<'_>,
        slot: Slot,
        having: &Having,
        other: Option<&Offer>,
    ) -> Option<Offer> {
        let tokens = having.uncached_on(slot, asked, self.view);
        let costs = self.costs(slot, tokens, asked.patience);
        if other.is_some_and(|other| costs.least() >= other.cost) {
            return None;
        }
        let offer = self.offer_at(&costs, slot, having.found);
        (other.is_none_or(|other| offer.cost < other.cost)).then_some(offer)
    }

    /// What the replica would offer if it had this of the prompt and nothing that only it can have.
    pub(super) fn offer_of_another(&self, asked: &Asked<'_>, slot: Slot, found: Match) -> Offer {
        let tokens = uncached_tokens(asked.request, found.depth);
        self.priced(slot, found, tokens, asked.patience)
    }

    /// What it costs to have a replica compute so many tokens, after so long.
    fn priced(&self, slot: Slot, found: Match, tokens: f64, patience: Patience) -> Offer {
        let costs = self.costs(slot, tokens, patience);
        self.offer_at(&costs, slot, found)
    }

    fn offer_at(&self, costs: &Costs, slot: Slot, found: Match) -> Offer {
        let view = self.view;
        let computing = view.fleet.utilisation_of(slot, view.now).min(COMPUTING_MAX);
        Offer {
            slot,
            cost: costs.with_stalls(costs.own_s * computing / (1.0 - computing)),
            ttft_s: costs.ttft_s,
            found,
        }
    }

    /// All but what this replica's share of time says, which takes longest to work out.
    fn costs(&self, slot: Slot, tokens: f64, patience: Patience) -> Costs {
        let view = self.view;
        let fleet = view.fleet;
        let work_s = fleet.prefill_s(slot, tokens);
        let service_s = view.service_s.unwrap_or_default();
        let memory_s = MEMORY * fleet.memory_wait_s(slot, tokens, service_s);
        let outstanding = f64::from(load_key(view, slot).0);
        let work = Work {
            work_s,
            busy_s: fleet.backlog_s(slot, view.now) + work_s,
            ttft_s: fleet.ttft_s(slot, tokens, view.now) + memory_s,
            outstanding,
            writing_s: fleet.writing_s(slot, outstanding),
        };
        self.costs_of(&work, patience)
    }

    /// Any replica costs at least this that has no more of the prompt than so much: an idle one, as fast as the fastest. More of
    /// anything never makes the sum less, and what rounding may is taken off.
    pub(super) fn floor(&self, asked: &Asked<'_>, depth: usize) -> f64 {
        let view = self.view;
        let tokens = asked.uncached_at_least(depth, view);
        let pace = view.fleet.fastest();
        let work_s = tokens * pace.prefill.each_s;
        let outstanding = f64::from(view.fleet.least_outstanding());
        let work = Work {
            work_s,
            busy_s: work_s,
            ttft_s: pace.prefill.fixed_s + work_s,
            outstanding,
            writing_s: view.fleet.writing_at_s(pace, outstanding),
        };
        self.costs_of(&work, asked.patience).least() * (1.0 - ROUNDING)
    }

    fn costs_of(&self, work: &Work, patience: Patience) -> Costs {
        let view = self.view;
        let delayed = STALLED * work.outstanding
            + (self.delayed_per_busy_s * work.busy_s).min(DELAYED_MAX)
            + self.waiting_for_each * marginal_lateness(patience.waited_s, view);
        let (own_s, theirs_s) = work.writing_s;
        Costs {
            ttft_s: work.ttft_s,
            own_s,
            waits: with_lateness(patience.waited_s + work.ttft_s, view) + work.work_s * delayed,
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
