//! Stored responses: the replica that made one gets the requests that continue it.

use super::Router;
use crate::{ReplicaId, Request, RequestId, ResponseKey, Scope, ServedBy, TenantId};

impl Router {
    /// Records that the response to a request in flight may be stored by its replica.
    pub(super) fn on_stored(&mut self, id: RequestId, served_by: ServedBy, response: ResponseKey) {
        let Some(request) = self.pool.in_flight.get(&id) else {
            return;
        };
        let replica = match served_by {
            ServedBy::Unreported => request.replica,
            ServedBy::Replica(replica) | ServedBy::Overridden(Some(replica)) => replica,
            ServedBy::UnknownHost | ServedBy::Overridden(None) => return,
        };
        self.pool
            .stored
            .record(request.tenant_id, response, replica);
    }

    /// The replica that may have a stored response of a tenant, if it is still in the pool.
    pub fn replica_of_response(
        &self,
        tenant: TenantId,
        response: ResponseKey,
    ) -> Option<ReplicaId> {
        let replica = self.pool.stored.replica_of(tenant, response)?;
        self.pool.replicas.slot_of(replica).map(|_| replica)
    }

    /// Restricts a request to the replica that has the response which it continues. A request is routed as any other if no replica is
    /// known to have it, or if that replica takes no new requests or may not serve this one.
    pub(super) fn keep_to_response(&self, request: &mut Request) {
        let Some(response) = request.previous_response else {
            return;
        };
        let Some(replica) = self.replica_of_response(request.tenant, response) else {
            return;
        };
        let subset = request.subset.as_deref();
        let listers = self.pool.adapters.listers(request);
        let index = self.pool.replicas.slot_of(replica);
        let may_serve = index.is_some_and(|index| {
            self.pool.replicas.staying().contains(index)
                && listers.is_none_or(|listers| listers.contains(index))
                && subset.is_none_or(|subset| subset.contains(&replica))
        });
        if may_serve {
            request.subset = Some([replica].into());
            if let Scope::Regions { .. } = request.scope {
                request.scope = Scope::Local;
            }
        }
    }
}
