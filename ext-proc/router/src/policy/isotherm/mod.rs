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

mod candidates;
mod cost;
mod query;

use smallvec::SmallVec;

use super::{
    DelayedRequests, LOOKED_AT_MAX, NextRequest, Policy, Selection, View, next_holder,
    that_may_serve,
};
use crate::index::PrefixMatch;
use crate::queue::{QueueSeq, QueuedRequest};
use crate::replica_index::ReplicaIndex;
use crate::{Reason, Request};

use self::candidates::{best_now, home_of};
use self::cost::CostModel;
use self::query::{CandidateQuery, WaitTimes};

/// The least expected cost to everybody.
#[derive(Debug)]
pub(super) struct Isotherm;

impl Policy for Isotherm {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let waited = WaitTimes {
            waited_s: view.waited_s,
            delayed_s: view.delayed_s,
        };
        let cost_model = CostModel::new(view);
        let query = CandidateQuery::new(request, waited, view);
        let best = best_now(&query, &cost_model)?;
        if let Some(home) = home_of(&query, &cost_model)
            && home.cost < best.cost
        {
            return Some(Selection::WaitFor(home.slot));
        }
        Some(Selection::Dispatch {
            slot: best.slot,
            reason: reason(&best.matched),
            matched: Some(best.matched),
        })
    }

    fn select_request(
        &self,
        slot: ReplicaIndex,
        queued: &mut dyn Iterator<Item = (QueueSeq, &QueuedRequest)>,
        view: &View<'_>,
        delayed: &mut DelayedRequests,
    ) -> Option<NextRequest> {
        let cost_model = CostModel::new(view);
        let mut others = view.replicas.trusted().clone();
        others.set(slot, false);
        let mut best: Option<(f64, QueueSeq)> = None;
        let queued: SmallVec<[_; LOOKED_AT_MAX]> = queued.collect();
        let hints = queued.iter();
        view.index
            .prefetch_hints(hints.map(|(_, w)| (&*w.request.fingerprint, w.known.get())));
        for (seq, queued) in queued {
            let query = CandidateQuery::again(queued, view);
            let waited = query.waited;
            let here = cost_model.candidate(&query, slot);
            if let Some(home) = home_of(&query, &cost_model)
                && home.cost < here.cost
            {
                delayed.push((seq, home.slot));
                continue;
            }
            let blocks = query.request.fingerprint.blocks();
            let elsewhere = that_may_serve(query.request, &others, view);
            let matched_elsewhere = view.index.deepest_within(blocks, &query.known, &elsewhere);
            let elsewhere = cost_model.offer_of_another(&query, slot, matched_elsewhere);
            let is_late = waited.waited_s + here.ttft_s > view.ttft_slo_s;
            let urgency = waited.waited_s - if is_late { view.ttft_slo_s } else { 0.0 };
            let worth = elsewhere.cost - here.cost + urgency;
            if best.is_none_or(|(most, _)| worth > most) {
                best = Some((worth, seq));
            }
        }
        // Where it goes is asked again: another free replica may suit it better still.
        best.map(|(_, seq)| NextRequest::AnyReplica(seq))
    }

    fn past_slo_last(&self) -> bool {
        true
    }

    fn select_fallback(
        &self,
        _request: &Request,
        matched: Option<&PrefixMatch>,
        view: &View<'_>,
        failed: &[ReplicaIndex],
    ) -> Option<ReplicaIndex> {
        next_holder(matched, view, failed)
    }

    /// Less cost is more.
    fn score(&self, request: &Request, slot: ReplicaIndex, view: &View<'_>) -> f64 {
        let waited = WaitTimes {
            waited_s: view.waited_s,
            delayed_s: view.delayed_s,
        };
        let query = CandidateQuery::new(request, waited, view);
        -CostModel::new(view).candidate(&query, slot).cost
    }
}

fn reason(matched: &PrefixMatch) -> Reason {
    if matched.depth > 0 {
        Reason::Prefix
    } else {
        Reason::Spread
    }
}

#[cfg(test)]
mod tests;
