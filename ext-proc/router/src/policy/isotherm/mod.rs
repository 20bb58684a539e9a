//! `isotherm`, the default policy: the least expected cost to all requests, selected as late as possible.
//!
//! Other policies weigh a warm cache against a short queue by a threshold. Here both are time ([`cost`]), and only the SLO is
//! configured. A request leaves a free replica when waiting for a warm busy one costs less (delay scheduling, Zaharia et al.
//! 2010). `docs/design/default-policy.md` describes the rules.

mod candidates;
mod cost;
mod prompt_load;
mod query;
mod region_costs;

use smallvec::SmallVec;

use super::{
    DelayedRequests, Dispatch, LOOKED_AT_BY_AFFINITY_MAX, LOOKED_AT_MAX, NextRequest, Policy,
    PolicyRules, RegionCosts, Selection, View,
};
use crate::constant::constants;
use crate::queue::{QueueSeq, QueuedRequest};
use crate::replica_index::ReplicaIndex;
use crate::wait_state::Objective;
use crate::{QueueOrder, Reason, Request};

use self::candidates::{affinity_replica, cheapest_now, some_holders, still_preferred};
use self::cost::{CandidateCost, CostModel};
use self::query::CandidateQuery;

constants! {
    /// Part of the expected time to first token that must fit into a request's own objective. A request that would be a little late may be
    /// in time after all. Guards: a request past its objective does not come before requests that can still meet theirs.
    IN_TIME_SHARE: f64 = 0.8;
}

#[derive(Debug)]
pub(crate) struct Isotherm;

impl Policy for Isotherm {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let cost_model = CostModel::new(view);
        let query = CandidateQuery::new(request, view);
        let best = cheapest_now(&query, &cost_model)?;
        if let Some(affinity) = affinity_replica(&query, &query.known, &cost_model, best.cost) {
            return Some(Selection::WaitFor(affinity.replica));
        }
        if cost_model.stalls_too_many(&best, query.timing) {
            return Some(Selection::WaitFor(best.replica));
        }
        Some(Selection::Dispatch(dispatch_to(&best, &query, view)))
    }

    /// Selects the request that saves most by going to the freed replica instead of to the next best one for it. A long prompt gives
    /// way to short ones: all others wait while a replica computes it. It leaves a replica free until some of the answers have ended
    /// that it would stall.
    fn select_request(
        &self,
        replica: ReplicaIndex,
        queued: &mut dyn Iterator<Item = (QueueSeq, &QueuedRequest)>,
        view: &View<'_>,
        delayed: &mut DelayedRequests,
    ) -> Option<NextRequest> {
        let mut cost_model = CostModel::new(view);
        cost_model.find_least_turn();
        let mut others = view.pool.replicas.trusted().clone();
        others.set(replica, false);
        let mut best: Option<(f64, NextRequest)> = None;
        let is_alone = view.candidates.len() == 1;
        let queued: SmallVec<[_; LOOKED_AT_MAX + LOOKED_AT_BY_AFFINITY_MAX]> = queued.collect();
        let hints = queued.iter();
        let hints = hints.map(|(_, w)| (&*w.request.fingerprint, w.known.get()));
        let index = &view.pool.index;
        index.prefetch_hints(hints);
        for (seq, queued) in queued {
            let query = CandidateQuery::of_queued(queued, view);
            let (waited_s, objective) = (query.timing.waited_s, query.timing.objective);
            let here = cost_model.price(&query, replica);
            let preferred = still_preferred(queued.preferred, &query, &cost_model, here.cost);
            if let Some(preferred) = preferred {
                delayed.push((seq, preferred));
                continue;
            }
            let blocks = query.request.fingerprint.blocks();
            let elsewhere = view.eligible(query.request, &others);
            let matched_elsewhere = index.deepest_within(blocks, &query.known, &elsewhere);
            let affinity = affinity_replica(&query, &matched_elsewhere, &cost_model, here.cost);
            if let Some(affinity) = affinity {
                delayed.push((seq, affinity.replica));
                continue;
            }
            if cost_model.stalls_too_many(&here, query.timing) {
                continue;
            }
            // The next best replica is priced with this one's load, without an answer or the session.
            let tokens = query.request.uncached_tokens(matched_elsewhere.depth);
            let adapter = query.adapter_cost_among(&elsewhere, view);
            let (matched, work) = (matched_elsewhere, query.work(tokens));
            let elsewhere = cost_model.price_work(replica, matched, work, query.timing, adapter);
            // A warm cache far outweighs a wait where most prompts are cold. Here it must not: cold prompts would starve.
            let saved_s = elsewhere.without_affinity() - here.without_affinity();
            let saving = saved_s + urgency_s(objective, waited_s, &here)
                - cost_model.delay_of_queue_s(&here);
            if best.is_none_or(|(most, _)| saving > most) {
                // Another free replica may suit the request better still.
                let next = if is_alone {
                    NextRequest::ThisReplica(seq, dispatch_to(&here, &query, view))
                } else {
                    NextRequest::AnyReplica(seq)
                };
                best = Some((saving, next));
            }
        }
        best.map(|(_, next)| next)
    }

    /// The least loaded holder of the longest prefix, or else the replica that served the session last.
    fn find_affinity(&self, queued: &QueuedRequest, view: &View<'_>) -> Option<ReplicaIndex> {
        let query = CandidateQuery::of_queued(queued, view);
        let trusted = view.eligible(query.request, view.pool.replicas.trusted());
        let blocks = query.request.fingerprint.blocks();
        let matched = view
            .pool
            .index
            .deepest_within(blocks, &query.known, &trusted);
        if matched.depth == 0 {
            return query.session_at.filter(|at| trusted.contains(*at));
        }
        let holders = some_holders(&matched, query.request, &trusted, view);
        holders.min_by_key(|holder| view.pool.replicas.rank(*holder))
    }

    /// The negated cost, in seconds.
    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        let query = CandidateQuery::new(request, view);
        -CostModel::new(view).price(&query, replica).cost
    }

    fn region_costs(&self) -> Option<&dyn RegionCosts> {
        Some(self)
    }

    fn rules(&self) -> PolicyRules {
        PolicyRules {
            past_slo_last: true,
            ..PolicyRules::default()
        }
    }
}

/// The dispatch to a priced replica.
fn dispatch_to(priced: &CandidateCost, query: &CandidateQuery<'_>, view: &View<'_>) -> Dispatch {
    let has_adapter = || {
        let holders = query.adapter_holders(view);
        holders.is_some_and(|holders| holders.contains(priced.replica))
    };
    let reason = if priced.matched.depth > 0 {
        Reason::Prefix
    } else if has_adapter() {
        Reason::Adapter
    } else {
        Reason::Spread
    };
    Dispatch {
        replica: priced.replica,
        reason,
        matched: Some(priced.matched),
    }
}

/// Urgency of a request that has waited for `waited_s`, in seconds, if it goes to this replica.
///
/// A request with the pool's objective loses the objective from its urgency once its first token is expected past it. A request with
/// its own objective is late once most of the time that it takes at the soonest would end past it: by waits for memory as dear as in
/// the cost, every short objective would come last. A late request comes last until it has expired, as by DPA (SageServe 6.5).
fn urgency_s(objective: Objective, waited_s: f64, here: &CandidateCost) -> f64 {
    if objective == Objective::of_pool(objective.pool_slo_s) {
        let is_past_slo = waited_s + here.times.ttft_s > objective.slo_s;
        return waited_s - if is_past_slo { objective.slo_s } else { 0.0 };
    }
    if waited_s + IN_TIME_SHARE.get() * here.times.soonest_s <= objective.slo_s {
        objective.urgency() * waited_s
    } else {
        let late_s = waited_s - objective.slo_s;
        objective.weight * (late_s - QueueOrder::DPA_EXPIRED.as_secs_f64())
    }
}

#[cfg(test)]
mod tests;
