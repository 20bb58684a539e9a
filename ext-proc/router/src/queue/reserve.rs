//! Tenants to which the reserve of a replica is closed: the windows of the replica do not show them.

use std::collections::BTreeSet;

use super::{Queue, QueuedRequest};
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::tenants::TenantSlot;

/// The replicas that keep a reserve, and the tenants to which it is closed.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    large: BTreeSet<TenantSlot>,
    replicas: ReplicaSet,
}

impl Reserve {
    /// Whether a window for a replica leaves a tenant out. A window for no replica in particular leaves none out.
    pub(super) fn is_closed_to(&self, tenant: TenantSlot, replica: Option<ReplicaIndex>) -> bool {
        !self.large.is_empty()
            && replica.is_some_and(|replica| self.replicas.contains(replica))
            && self.large.contains(&tenant)
    }
}

impl Queue {
    /// Registers whether a tenant has more than its share of the requests in flight.
    pub(crate) fn set_large(&mut self, tenant: TenantSlot, is_large: bool) {
        if is_large {
            self.reserve.large.insert(tenant);
        } else {
            self.reserve.large.remove(&tenant);
        }
    }

    /// Registers whether a replica keeps what is left of its memory for tenants that are not large.
    pub(crate) fn set_reserving(&mut self, replica: ReplicaIndex, is_reserving: bool) {
        self.reserve.replicas.set(replica, is_reserving);
    }

    /// Whether the reserve of replicas is closed to a request.
    pub(crate) fn is_large(&self, queued: &QueuedRequest) -> bool {
        self.reserve.large.contains(&queued.tenant)
    }

    /// Whether the reserve of replicas is closed to any tenant.
    pub(crate) fn has_large(&self) -> bool {
        !self.reserve.large.is_empty()
    }
}
