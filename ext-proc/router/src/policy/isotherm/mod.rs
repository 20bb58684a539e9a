//! `isotherm`, the default: the least expected cost to everybody, chosen as late as possible.
//!
//! Every policy of the literature weighs a warm cache against a short queue by a rule with a threshold: half of the prompt,
//! 32 requests, five seconds. Here both are time. A request costs its own wait for the first token and the time that it
//! takes from others; [`cost`] adds that up from what this pool has measured, replica by replica, and the least sum wins.
//! Nothing has to be set: the rates are learned, and the one goal, how soon a first token is wanted, has a default.
//!
//! *Late choice.* With a full fleet one replica is free at a time, and a queue that hands it the oldest request destroys
//! every cache just when it matters. So:
//!
//! - a request declines a free replica when waiting for a warm one that is busy costs less (delay scheduling, Zaharia et
//!   al. 2010). Its guess of that wait is never less than half of what it has waited so already, so that a wrong guess
//!   holds nobody for long, and where 64 decline a replica the oldest has to take it;
//! - a freed replica takes the waiting request that saves most by going there instead of to the next best for it: a prompt
//!   that every replica has loses nothing elsewhere, one that only this one has loses it all. A second of waiting counts as a
//!   second saved, so that age counts;
//! - where more is asked than the fleet can do, those that cannot have their first token in time any more come behind those
//!   that can. First come, first served would make everybody late.
//!
//! Rejected, each measured in the simulator: preferring short prompts when a replica is freed (long ones starve: p90
//! doubled on tools); the time to first token alone, without what computing takes from others (trees of thoughts lost a
//! fifth of their throughput, since prompts that are computed stall the answers that the replica is writing).

mod asked;
mod candidates;
mod cost;

use smallvec::SmallVec;

use super::{Declined, LOOKED_AT_MAX, Placement, Policy, Taken, View, next_holder, that_may_serve};
use crate::index::Match;
use crate::queue::{Place, Waiting};
use crate::slots::Slot;
use crate::{Reason, Request};

use self::asked::{Asked, Patience};
use self::candidates::{best_now, home_of};
use self::cost::Weigher;

/// The least expected cost to everybody.
#[derive(Debug)]
pub(super) struct Isotherm;

impl Policy for Isotherm {
    fn place(&self, request: &Request, view: &View<'_>) -> Option<Placement> {
        let patience = Patience {
            waited_s: view.waited_s,
            declined_s: view.declined_s,
        };
        let weigher = Weigher::new(view);
        let asked = Asked::new(request, patience, view);
        let best = best_now(&asked, &weigher)?;
        if let Some(home) = home_of(&asked, &weigher)
            && home.cost < best.cost
        {
            return Some(Placement::WaitFor(home.slot));
        }
        Some(Placement::Now {
            slot: best.slot,
            reason: reason(&best.found),
            found: Some(best.found),
        })
    }

    fn take(
        &self,
        slot: Slot,
        waiting: &mut dyn Iterator<Item = (Place, &Waiting)>,
        view: &View<'_>,
        declined: &mut Declined,
    ) -> Option<Taken> {
        let weigher = Weigher::new(view);
        let mut others = view.fleet.trusted().clone();
        others.set(slot, false);
        let mut best: Option<(f64, Place)> = None;
        let waiting: SmallVec<[_; LOOKED_AT_MAX]> = waiting.collect();
        let hints = waiting.iter();
        view.index
            .read_hints(hints.map(|(_, w)| (&*w.request.fingerprint, w.known.get())));
        for (place, waiting) in waiting {
            let asked = Asked::again(waiting, view);
            let patience = asked.patience;
            let here = weigher.offer(&asked, slot);
            if let Some(home) = home_of(&asked, &weigher)
                && home.cost < here.cost
            {
                declined.push((place, home.slot));
                continue;
            }
            let blocks = asked.request.fingerprint.blocks();
            let elsewhere = that_may_serve(asked.request, &others, view);
            let found_elsewhere = view.index.deepest_within(blocks, &asked.known, &elsewhere);
            let elsewhere = weigher.offer_of_another(&asked, slot, found_elsewhere);
            let is_late = patience.waited_s + here.ttft_s > view.ttft_slo_s;
            let urgency = patience.waited_s - if is_late { view.ttft_slo_s } else { 0.0 };
            let worth = elsewhere.cost - here.cost + urgency;
            if best.is_none_or(|(most, _)| worth > most) {
                best = Some((worth, place));
            }
        }
        // Where it goes is asked again: another free replica may suit it better still.
        best.map(|(_, place)| Taken::Turn(place))
    }

    fn puts_late_last(&self) -> bool {
        true
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
        let patience = Patience {
            waited_s: view.waited_s,
            declined_s: view.declined_s,
        };
        let asked = Asked::new(request, patience, view);
        -Weigher::new(view).offer(&asked, slot).cost
    }
}

fn reason(found: &Match) -> Reason {
    if found.depth > 0 {
        Reason::Prefix
    } else {
        Reason::Spread
    }
}

#[cfg(test)]
mod tests;
