//! Results of a decision, and the targets that it chooses from.

use crate::RejectReason;
use crate::forwarding::ForwardTarget;
use crate::policy::Dispatch;
use crate::pool_state::PoolState;
use crate::replica_index::{ReplicaIndex, ReplicaSet};

/// Where a request goes, or that it waits, maybe for one replica.
pub(super) enum RoutingDecision {
    Dispatch(Dispatch),
    Forward(ForwardTarget),
    Reject(RejectReason),
    Wait(Option<ReplicaIndex>),
}

/// The replicas and peers that are available at the time of a decision.
#[derive(Clone, Copy)]
pub(super) struct AvailableTargets<'a> {
    pub(super) replicas: &'a ReplicaSet,
    pub(super) peers: &'a ReplicaSet,
    /// Whether queued requests take the freed replicas first.
    pub(super) is_serving: bool,
}

impl<'a> AvailableTargets<'a> {
    /// The targets as of the last event.
    pub(super) const fn of(pool: &'a PoolState, is_serving: bool) -> Self {
        Self {
            replicas: pool.replicas.available(),
            peers: pool.peers.available(),
            is_serving,
        }
    }
}
