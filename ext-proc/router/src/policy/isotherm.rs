//! `isotherm`, the default: the least expected cost to all, chosen as late as possible.

use super::{Placement, Policy, Taken, View, load_key, may_serve, next_holder, uncached_tokens};
use crate::index::Match;
use crate::queue::{Place, Waiting};
use crate::slots::{Slot, SlotSet};
use crate::{Reason, Request};

/// How many depths of match are looked at.
const DEPTHS_MAX: usize = 4;
/// How many replicas of each depth, and of those with least to do.
const EACH_MAX: usize = 4;
/// The price of others' time is at most this.
const PRICE_MAX: f64 = 8.0;
/// The shortest wait for a replica that is not available, in seconds.
const WAIT_S_MIN: f64 = 0.02;

/// The least expected cost to all.
#[derive(Debug)]
pub(super) struct Isotherm;

/// What a second of writing counts against a second before the first token.
const WRITING: f64 = 0.5;

/// What it costs to send a request to a replica.
#[derive(Clone, Copy, Debug)]
struct Offer {
    slot: Slot,
    cost: f64,
    found: Match,
}

impl Policy for Isotherm {
    fn place(&self, request: &Request, view: &View<'_>) -> Option<Placement> {
        let best = best_now(request, view)?;
        if let Some(home) = home_of(request, view)
            && home.cost < best.cost
        {
            return Some(Placement::WaitFor(home.slot));
        }
        let reason = if best.found.depth > 0 {
            Reason::Prefix
        } else {
            Reason::Spread
        };
        Some(Placement::Now {
            slot: best.slot,
            reason,
            found: Some(best.found),
        })
    }

    fn take(
        &self,
        slot: Slot,
        waiting: &mut dyn Iterator<Item = (Place, &Waiting)>,
        view: &View<'_>,
    ) -> Option<Taken> {
        let mut best: Option<(f64, Place, Match)> = None;
        for (place, waiting) in waiting {
            let request = &waiting.request;
            let here = offer(request, slot, view);
            if let Some(home) = home_of(request, view)
                && home.slot != slot
                && home.cost < here.cost
            {
                continue;
            }
            let age = view.now.since(waiting.arrived).as_secs_f64();
            let ttft_s =
                view.fleet
                    .ttft_s(slot, uncached_tokens(request, here.found.depth), view.now);
            let late = if age + ttft_s > view.ttft_slo_s {
                view.ttft_slo_s
            } else {
                0.0
            };
            let score = here.cost - age * 0.5 + late;
            if best.is_none_or(|(least, _, _)| score < least) {
                best = Some((score, place, here.found));
            }
        }
        best.map(|(_, place, found)| Taken::Here {
            place,
            reason: if found.depth > 0 {
                Reason::Prefix
            } else {
                Reason::Spread
            },
            found: Some(found),
        })
    }

    fn next_best(
        &self,
        _request: &Request,
        found: Option<&Match>,
        view: &View<'_>,
        failed: &[Slot],
    ) -> Option<Slot> {
        next_holder(found, view, failed)
    }

    /// Less cost is more.
    fn score(&self, request: &Request, slot: Slot, view: &View<'_>) -> f64 {
        -offer(request, slot, view).cost
    }
}

fn offer(request: &Request, slot: Slot, view: &View<'_>) -> Offer {
    let found = view.index.deepest_of(request.fingerprint.edges(), slot);
    priced(request, slot, found, view)
}

fn priced(request: &Request, slot: Slot, found: Match, view: &View<'_>) -> Offer {
    let tokens = uncached_tokens(request, found.depth);
    let fleet = view.fleet;
    let work_s = fleet.prefill_s(slot, tokens);
    let backlog_s = fleet.backlog_s(slot, view.now);
    let outstanding = f64::from(load_key(view, slot).0);
    let (own_s, theirs_s) = fleet.writing_s(slot, outstanding);
    let cost = fleet.ttft_s(slot, tokens, view.now)
        + work_s * price(backlog_s + work_s, view)
        + WRITING * (own_s + theirs_s);
    Offer { slot, cost, found }
}

/// How many others wait longer by a second of computing.
fn price(busy_s: f64, view: &View<'_>) -> f64 {
    let spare = 1.0 - view.fleet.utilisation(view.now).min(0.95);
    (view.fleet.requests_per_s(view.now) * busy_s / spare).min(PRICE_MAX)
}

fn best_now(request: &Request, view: &View<'_>) -> Option<Offer> {
    let mut rest = view.candidates.clone();
    let mut best: Option<Offer> = None;
    let mut consider = |offer: Offer| {
        if best.is_none_or(|known| offer.cost < known.cost) {
            best = Some(offer);
        }
    };
    for _ in 0..DEPTHS_MAX {
        let found = view.index.deepest(request.fingerprint.edges(), &rest);
        if found.depth == 0 {
            break;
        }
        let holders: Vec<Slot> = view.index.targets(&found, &rest).collect();
        let mut by_load = holders.clone();
        by_load.sort_by_key(|slot| load_key(view, *slot));
        for slot in by_load.into_iter().take(EACH_MAX) {
            consider(priced(request, slot, found, view));
        }
        for slot in holders {
            rest.set(slot, false);
        }
    }
    let idle = view.fleet.by_load().filter(|slot| rest.contains(*slot));
    for slot in idle.take(EACH_MAX) {
        consider(priced(request, slot, Match::default(), view));
    }
    best
}

/// The replica that is not available and has most of the prompt, with what waiting for it costs.
fn home_of(request: &Request, view: &View<'_>) -> Option<Offer> {
    let mut busy = SlotSet::default();
    let trusted = view.fleet.trusted();
    for slot in trusted.iter() {
        let is_busy = !view.candidates.contains(slot);
        busy.set(slot, is_busy && may_serve(request, slot, view));
    }
    let found = view.index.deepest(request.fingerprint.edges(), &busy);
    if found.depth == 0 {
        return None;
    }
    view.index
        .targets(&found, &busy)
        .map(|slot| {
            let offer = priced(request, slot, found, view);
            let cost = offer.cost + wait_s(slot, view);
            Offer { cost, ..offer }
        })
        .min_by(|a, b| a.cost.total_cmp(&b.cost))
}

/// How long until a replica can be sent a request, beyond its backlog, behind those that wait for it already.
#[expect(clippy::cast_precision_loss, reason = "a number of requests")]
fn wait_s(slot: Slot, view: &View<'_>) -> f64 {
    let outstanding = f64::from(load_key(view, slot).0).max(1.0);
    let turn = view.service_s.unwrap_or(1.0) / outstanding;
    let ahead = view.queue.wanting(slot) as f64;
    WAIT_S_MIN + ahead * turn
}
