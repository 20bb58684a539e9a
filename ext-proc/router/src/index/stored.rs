//! The replica of each stored response: no other replica has it, so a request that names it is for that replica alone.
//!
//! A tenant is a part of the key: no tenant reaches the response of another. Each tenant has a bounded number of places, which its new
//! responses take in turn, so that no tenant evicts the responses of others before there are very many tenants.

use super::process::{Process, Processes};
use super::recent::{RecencyKey, RecencyMap};
use super::table::HashMixer;
use crate::{ReplicaId, ResponseKey, TenantId};

/// Responses of all tenants, at most. Guards: the tables of a pool stay below 25 MB.
const RESPONSES_MAX: usize = 1 << 17;
/// Responses of a tenant, at most. Guards: a tenant takes a quarter of the places.
const TENANT_RESPONSES_MAX: u32 = 1 << 15;

/// The replicas of the latest responses.
#[derive(Debug)]
pub(crate) struct StoredResponses {
    replicas: RecencyMap<(TenantId, ResponseKey), Process>,
    /// The response at each place of a tenant.
    places: RecencyMap<(TenantId, u32), ResponseKey>,
    /// The place that the next response of a tenant takes.
    next: RecencyMap<TenantId, u32>,
    processes: Processes,
}

impl RecencyKey for TenantId {
    fn mixed(&self, mixer: &HashMixer) -> u64 {
        mixer.mix(self.0)
    }
}

impl RecencyKey for (TenantId, ResponseKey) {
    fn mixed(&self, mixer: &HashMixer) -> u64 {
        mixer.mix(self.0.mixed(mixer) ^ self.1.0)
    }
}

impl RecencyKey for (TenantId, u32) {
    fn mixed(&self, mixer: &HashMixer) -> u64 {
        mixer.mix(self.0.mixed(mixer) ^ u64::from(self.1))
    }
}

impl StoredResponses {
    /// No responses. The seed decides where entries lie in memory.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            replicas: RecencyMap::with_entries(RESPONSES_MAX, seed),
            places: RecencyMap::with_entries(RESPONSES_MAX, seed),
            next: RecencyMap::with_entries(RESPONSES_MAX, seed),
            processes: Processes::default(),
        }
    }

    /// Records the replica that has a response.
    pub(crate) fn record(&mut self, tenant: TenantId, response: ResponseKey, replica: ReplicaId) {
        let process = self.processes.current(replica);
        if self.replicas.put((tenant, response), process).is_some() {
            return;
        }
        let place = self.next.get(&tenant).copied().unwrap_or_default();
        self.next.put(tenant, (place + 1) % TENANT_RESPONSES_MAX);
        if let Some(oldest) = self.places.put((tenant, place), response) {
            self.replicas.remove_key(&(tenant, oldest));
        }
    }

    /// The replica that has a response; `None` once its process has ended.
    pub(crate) fn replica_of(&self, tenant: TenantId, response: ResponseKey) -> Option<ReplicaId> {
        self.processes
            .replica_of(*self.replicas.get(&(tenant, response))?)
    }

    /// Forgets the responses of the ended process of a replica.
    pub(crate) fn on_restart(&mut self, replica: ReplicaId) {
        self.processes.restart(replica);
    }

    /// Forgets a removed replica.
    pub(crate) fn removed(&mut self, replica: ReplicaId) {
        self.processes.remove(replica);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLICA: ReplicaId = ReplicaId(1);

    #[test]
    fn a_response_is_at_its_last_replica_until_the_process_ends() {
        let mut stored = StoredResponses::new(1);
        let (tenant, response) = (TenantId(7), ResponseKey(5));
        assert_eq!(stored.replica_of(tenant, response), None);
        stored.record(tenant, response, REPLICA);
        stored.record(tenant, response, ReplicaId(2));
        assert_eq!(stored.replica_of(tenant, response), Some(ReplicaId(2)));
        stored.on_restart(ReplicaId(2));
        assert_eq!(stored.replica_of(tenant, response), None);
    }

    #[test]
    fn a_tenant_reaches_its_own_responses_only() {
        let mut stored = StoredResponses::new(1);
        stored.record(TenantId(7), ResponseKey(5), REPLICA);
        assert_eq!(stored.replica_of(TenantId(8), ResponseKey(5)), None);
        stored.record(TenantId(8), ResponseKey(5), ReplicaId(2));
        let own = stored.replica_of(TenantId(7), ResponseKey(5));
        assert_eq!(own, Some(REPLICA));
    }

    #[test]
    fn a_tenant_with_many_responses_loses_its_own_oldest_ones() {
        let mut stored = StoredResponses::new(1);
        let (quiet, busy) = (TenantId(7), TenantId(8));
        stored.record(quiet, ResponseKey(0), REPLICA);
        let count = u64::from(TENANT_RESPONSES_MAX) * 5;
        for response in 0..count {
            stored.record(busy, ResponseKey(response), REPLICA);
        }
        let has = |tenant, response| stored.replica_of(tenant, ResponseKey(response)).is_some();
        assert!(has(quiet, 0));
        let kept = (0..count).filter(|response| has(busy, *response));
        assert_eq!(kept.count(), TENANT_RESPONSES_MAX as usize);
        assert!(has(busy, count - 1) && !has(busy, 0));
    }
}
