//! Policies of the literature, over the public trait of Isotherm's routing core.
//!
//! One module holds one policy, with its source and what was changed or left out. [`PolicyName`] lists the policies that a
//! configuration may name. The others are rivals for experiments: [`EndpointScorers`], [`TokenLoad`], [`LMetric`], [`SMetric`], [`BlockCost`], and
//! [`DualMap`] with parts switched off. A policy of your own needs nothing of this crate: see `docs/policies.md`.

mod block_cost;
mod cache_aware;
mod consistent_hash;
mod dual_map;
mod endpoint_scorers;
mod in_flight;
mod least_outstanding;
mod lmetric;
mod min_ttft;
mod name;
mod preble;
mod prefix_tree;
mod random;
mod round_robin;
mod smetric;
mod token_load;

pub use block_cost::BlockCost;
pub use cache_aware::CacheAware;
pub use consistent_hash::ConsistentHash;
pub use dual_map::DualMap;
pub use endpoint_scorers::{EndpointScorers, ScorerWeights};
pub use least_outstanding::LeastOutstanding;
pub use lmetric::LMetric;
pub use min_ttft::MinTtft;
pub use name::{PolicyName, UnknownPolicy};
pub use preble::Preble;
pub use prefix_tree::PrefixTree;
pub use random::{PowerOfTwo, Random};
pub use round_robin::RoundRobin;
pub use smetric::SMetric;
pub use token_load::TokenLoad;

use isotherm_router::{ReplicaIndex, Request, View};

/// The share of the prompt that a replica holds, less a little for its load, which decides among equal matches.
fn match_less_load(request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
    let matched = view.match_on(request, replica);
    let load = f64::from(view.rank(replica).requests());
    request.fingerprint.share_at(matched.depth) - load / (1_000.0 + load) / 1_000.0
}

/// A replica's load as a score: more is better.
fn load_score(view: &View<'_>, replica: ReplicaIndex) -> f64 {
    -f64::from(view.rank(replica).requests())
}
