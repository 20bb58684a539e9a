//! Adapters: what replicas tell of them, and what dispatched and ended requests change.

use super::Router;
use crate::pool_state::InFlightRequest;
use crate::replica_index::ReplicaIndex;
use crate::{AdapterKey, AdapterReport, AdapterState, ReplicaId, Time};

impl Router {
    pub(super) fn list_adapters(&mut self, id: ReplicaId, adapters: Vec<AdapterKey>) {
        if let Some(replica) = self.pool.replicas.slot_of(id) {
            self.pool.adapters.list(replica, adapters);
        }
    }

    pub(super) fn report_adapters(&mut self, id: ReplicaId, report: &AdapterReport, sent: Time) {
        let (load_s, now) = (self.pool.adapter_load_s(), self.pool.now);
        if let Some(replica) = self.pool.replicas.slot_of(id) {
            let adapters = &mut self.pool.adapters;
            adapters.report(replica, report, sent.min(now), load_s, now);
        }
    }

    /// Registers a dispatched request with its adapter; returns whether its replica loads an adapter first.
    pub(super) fn use_adapter(
        &mut self,
        replica: ReplicaIndex,
        adapter: Option<AdapterKey>,
    ) -> bool {
        let (load_s, now) = (self.pool.adapter_load_s(), self.pool.now);
        let adapters = &mut self.pool.adapters;
        let is_loading = adapters.loading_s(replica, now) > 0.0;
        let Some(adapter) = adapter else {
            return is_loading;
        };
        self.counters.adapter_requests += 1;
        match adapters.on_dispatch(replica, adapter, load_s, now) {
            AdapterState::Loaded => is_loading,
            AdapterState::Waiting => true,
            AdapterState::FreeSlot | AdapterState::Evicts | AdapterState::Full => {
                self.counters.adapter_loads += 1;
                true
            }
        }
    }

    /// Registers the end of a request with its adapter.
    pub(super) fn release_adapter(&mut self, request: &InFlightRequest) {
        let Some(adapter) = request.adapter else {
            return;
        };
        let (load_s, now) = (self.pool.adapter_load_s(), self.pool.now);
        if let Some(replica) = self.pool.replicas.slot_of(request.replica) {
            let adapters = &mut self.pool.adapters;
            adapters.on_release(replica, adapter, load_s, now);
        }
    }
}
