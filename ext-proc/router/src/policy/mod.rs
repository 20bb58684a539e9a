//! Policies: which replica serves a request.
//!
//! A [`Policy`] reads the pool through a [`View`]. It may let a request wait for a busy replica (delay scheduling): when a replica is
//! freed, the requests that wait are asked again, in the order of service. Selecting changes nothing, so an explanation shows what would
//! happen. A policy with state (the next replica of a round, the next random number) changes it in [`Policy::on_event`] alone.
//!
//! The core has one policy, the default. Those of the literature are in the crate `isotherm-policies`.

mod factory;
mod isotherm;
mod selection;
mod view;

use core::fmt::Debug;

pub use factory::{PolicyFactory, RouterConfig};
pub(crate) use isotherm::Isotherm;
pub use selection::{Dispatch, PolicyEvent, PolicyRules, Selection};
pub use view::{InFlight, View};

use crate::replica_index::ReplicaIndex;
use crate::{PromptCost, Request};

/// A rule that selects replicas for the requests of one pool.
///
/// Two methods are required: [`Self::select_replica`] decides, and [`Self::score`] shows why. The others have defaults that suit a policy
/// without state, whose requests wait for any replica. A policy reads no clock and has no randomness of its own: the same
/// events give the same decisions.
pub trait Policy: Debug + Send {
    /// Selects a replica for a request; `None` lets it wait for any.
    ///
    /// The router calls this when a request arrives, and for a queued request when a replica is free. A selection of a replica that is no
    /// candidate of the view lets the request wait.
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection>;

    /// Scores a replica for a request, for explanations; more is better.
    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64;

    /// Worth of a waiting request to a freed replica, in seconds: of the first ones in the order of service, the one that is worth
    /// most is asked first. By default all are worth the same, so the order decides.
    fn worth(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        let _ = (request, replica, view);
        0.0
    }

    /// Selects the replica to try when these have failed: by default the least loaded one.
    fn select_fallback(
        &self,
        request: &Request,
        view: &View<'_>,
        failed: &[ReplicaIndex],
    ) -> Option<ReplicaIndex> {
        let _ = request;
        view.least_loaded(failed)
    }

    /// Follows a change of the pool. The only method that changes the policy.
    fn on_event(&mut self, event: PolicyEvent<'_>) {
        let _ = event;
    }

    /// Rules that the router applies on behalf of the policy, always the same.
    fn rules(&self) -> PolicyRules {
        PolicyRules::default()
    }

    /// Costs that compare with those of peer regions; `None` for a policy that does not price replicas in seconds.
    fn region_costs(&self) -> Option<&dyn RegionCosts> {
        None
    }
}

/// Costs of a policy that compare with those of peer regions, in seconds.
pub trait RegionCosts {
    /// Cost of a prompt that no candidate holds, for peers.
    fn prompt_cost(&self, view: &View<'_>) -> Option<PromptCost>;

    /// Cost of a request on a replica, sent after a wait. `None` where the costs of peers leave out what matters to it.
    fn cost_here(
        &self,
        request: &Request,
        replica: ReplicaIndex,
        wait_s: f64,
        view: &View<'_>,
    ) -> Option<f64>;

    /// Cost of so many tokens to compute where a prompt has this cost, sent after a wait.
    fn cost_there(&self, cost: &PromptCost, tokens: f64, wait_s: f64, view: &View<'_>) -> f64;
}
