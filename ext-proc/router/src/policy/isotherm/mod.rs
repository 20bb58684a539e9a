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

use super::{Dispatch, Policy, PolicyRules, RegionCosts, Selection, View};
use crate::replica_index::ReplicaIndex;
use crate::{Reason, Request};

use self::candidates::{affinity_replica, cheapest_now};
use self::cost::{CandidateCost, CostModel};
use self::query::CandidateQuery;

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

    /// The cost that a request saves by going to the freed replica instead of to the next best one for it, and its urgency, less what
    /// its prompt takes from the others that wait. A late request loses the objective from its urgency.
    fn worth(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        let cost_model = CostModel::without_affinity(view);
        let query = CandidateQuery::new(request, view);
        let here = cost_model.price(&query, replica);
        let mut others = view.pool.replicas.trusted().clone();
        others.set(replica, false);
        let others = view.eligible(request, &others);
        let elsewhere = cost_model.price_as_cached(&query, replica, &others);
        let (timing, slo_s) = (query.timing, query.timing.objective.pool_slo_s);
        let is_late = timing.waited_s + here.ttft_s > timing.objective.slo_s;
        let urgency = timing.objective.urgency() * timing.waited_s;
        let late_s = if is_late { slo_s } else { 0.0 };
        elsewhere.cost - here.cost + urgency - late_s - cost_model.delay_of_queue_s(&here)
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
            weighs_requests: true,
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

#[cfg(test)]
mod tests;
