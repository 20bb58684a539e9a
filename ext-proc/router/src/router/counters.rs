//! Counters of engines: what they show of a replica between two probes.

use super::Router;
use crate::engine_counters::CounterChange;
use crate::{EngineCounters, ReplicaId, Time};

impl Router {
    pub(super) fn report_counters(&mut self, id: ReplicaId, counters: &EngineCounters, sent: Time) {
        let (now, pool) = (self.pool.now, &mut self.pool);
        let Some(replica) = pool.replicas.slot_of(id) else {
            return;
        };
        match pool.replicas.counted(replica, counters, sent.min(now)) {
            Some(CounterChange::Restarted) => pool.replicas.restarted(id, now),
            Some(CounterChange::Grown(_)) | None => {}
        }
    }
}
