//! The routing core of Isotherm: no clock, no socket, no randomness of its own.
//!
//! One [`Router`] serves one pool (the replicas of one model in one region). It is *sans I/O*: time and events
//! come in as arguments, effects come out of [`Router::poll_effect`]. The service and the simulator are two
//! drivers of the same calls.

mod adapters;
mod config;
mod constant;
mod effect;
mod engine_counters;
mod event;
mod forwarding;
mod gate;
mod in_flight;
mod index;
mod peer;
mod policy;
mod pool_state;
mod quarantine;
mod queue;
mod replica;
mod replica_index;
mod ring;
mod role;
mod router;
mod stats;
mod status;
mod tenants;
mod tier_rules;
mod tier_status;
mod time;
mod wait_state;

pub use adapters::{ADAPTERS_LISTED_MAX, ADAPTERS_MAX, AdapterState, AdapterStatus};
pub use config::{
    CacheAwareRules, Config, Eviction, ForwardingRule, IndexLimits, MissRule, OUTSTANDING_MAX,
    Push, QueueLimits, RegionRules, TenantLimits,
};
#[cfg(feature = "research")]
pub use constant::{constants_read, scale_constant};
pub use effect::{Decision, Effect, ForwardDecision, Reason, RejectReason};
pub use engine_counters::{EngineCounters, Total};
pub use event::{
    AdapterKey, AdapterReport, End, Event, Load, Placement, ReplicaId, Request, RequestId,
    ResponseKey, Scope, ServedBy, SessionKey, Target, TenantId, Tier,
};
pub use index::PrefixMatch;
pub use peer::{PeerAvailability, PeerId, PeerReport, PeerStatus, PromptCost};
pub use policy::{
    Dispatch, InFlight, Policy, PolicyEvent, PolicyFactory, PolicyRules, RegionCosts, RouterConfig,
    Selection, View,
};
pub use queue::{QueueSeq, QueuedRequest};
pub use replica::Rank;
pub use replica_index::{ReplicaIndex, ReplicaSet};
pub use ring::{Ring, nearness};
pub use role::Role;
pub use router::Router;
pub use stats::{Counters, IndexStats, Stats};
pub use status::{
    Availability, Candidate, Choice, Explanation, PeerCandidate, PoolEstimates, ReplicaStatus,
    Signals, Source, TenantStatus,
};
pub use tier_rules::{BatchTier, InteractiveTier, QueueOrder, RegionChoice, TierRules, WorkClass};
pub use tier_status::{BatchStatus, ReleaseReason, TierStatus};
pub use time::Time;
