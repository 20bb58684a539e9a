//! Counters of engines: what they show of a replica between two probes.

use super::Router;
use crate::replica::CounterEvent;
use crate::replica_index::ReplicaIndex;
use crate::{EngineCounters, ReplicaId, Source, Time};

impl Router {
    pub(super) fn report_counters(&mut self, id: ReplicaId, counters: &EngineCounters, sent: Time) {
        let (now, pool) = (self.pool.now, &mut self.pool);
        let Some(replica) = pool.replicas.slot_of(id) else {
            return;
        };
        match pool.replicas.on_counters(replica, counters, sent.min(now)) {
            Some(CounterEvent::Restarted) => self.on_restart(id, replica),
            Some(CounterEvent::Grown(grown)) => self.learn_counters(replica, &grown),
            Some(CounterEvent::SeveralFound) => pool.replicas.forget_counters(replica),
            None => {}
        }
    }

    /// Whether the counters at a replica's address are those of several processes in turn, which tell nothing.
    #[must_use]
    pub fn has_several_processes(&self, replica: ReplicaId, now: Time) -> bool {
        let replicas = &self.pool.replicas;
        let slot = replicas.slot_of(replica);
        slot.is_some_and(|slot| replicas.has_several_processes(slot, now))
    }

    fn learn_counters(&mut self, replica: ReplicaIndex, grown: &EngineCounters) {
        let (now, replicas) = (self.pool.now, &mut self.pool.replicas);
        if let Some(replica) = replicas.get_mut(replica) {
            replica.signs.on_counters(grown, now);
        }
        replicas.learn_counters(replica, grown, now);
        if let Some(ratio) = replicas.counter_sums().tokens_per_estimate()
            && replicas.signals.token_length.teach(Source::Counters, now)
        {
            self.token_length.learn_counted(ratio);
        }
        if let Some(share) = replicas.counter_sums().answer_hit_share()
            && !replicas.signals.cache_hits.is_recent(Source::Usage, now)
        {
            self.pool.answers.learn_counted(share);
        }
    }
}
