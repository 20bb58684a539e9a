//! Members of a pool: replicas and peers that join, leave, change, are probed, or hang.
//!
//! A replica that leaves also leaves the restrictions of queued requests. One event changes a bounded number of requests, and the rest is
//! due at once. The replica stays in the restrictions of such requests for that long. Nothing is dispatched to it, and its index is not
//! reused before.

use std::collections::BTreeMap;

use super::Router;
use super::hang::{Verdict, judge_silence};
use crate::index::PrefixIndex;
use crate::policy::PolicyEvent;
use crate::queue::{Queue, QueueSeq};
use crate::replica::{CounterEvent, Replica};
use crate::replica_index::ReplicaIndex;
use crate::{
    Effect, EngineCounters, Load, Placement, RejectReason, ReplicaId, Role, Source, Target, Time,
};

/// Limit of restricted requests from whose restriction one event removes a replica.
const UNPINNED_PER_EVENT_MAX: usize = 1_024;

/// Replicas that events are removing from the restrictions of queued requests.
#[derive(Debug, Default)]
pub(super) struct UnpinQueue(BTreeMap<ReplicaIndex, UnpinReason>);

/// Reason for removing a replica from the restrictions of queued requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnpinReason {
    /// The replica gets no requests, and stays in the pool.
    Unavailable,
    /// The replica was removed, and its index is to be retired.
    Removed,
}

impl UnpinQueue {
    fn add(&mut self, replica: ReplicaIndex, reason: UnpinReason) {
        self.0.insert(replica, reason);
    }

    fn contains(&self, replica: ReplicaIndex) -> bool {
        self.0.contains_key(&replica)
    }

    /// The replica that leaves next.
    pub(super) fn first(&self) -> Option<ReplicaIndex> {
        self.0.first_key_value().map(|(replica, _)| *replica)
    }

    /// Removes a replica from a bounded number of restrictions. Returns the requests that no replica may serve any more.
    fn unpin(
        &mut self,
        replica: ReplicaIndex,
        queue: &mut Queue,
        index: &mut PrefixIndex,
    ) -> Vec<QueueSeq> {
        let unroutable = queue.unpin(replica, UNPINNED_PER_EVENT_MAX);
        if !queue.has_pinned_to(replica) && self.0.remove(&replica) == Some(UnpinReason::Removed) {
            index.leave(replica);
        }
        unroutable
    }
}

impl Router {
    /// Applies a probe: the load that it showed, or none if the replica answered it without metrics.
    pub(super) fn on_probe(&mut self, id: ReplicaId, load: Option<Load>, sent: Time) {
        let is_news = self.pool.on_probe(id, load, sent);
        if is_news
            && let Some(load) = load
            && let Some(index) = self.pool.replicas.slot_of(id)
        {
            if let Some(tokens) = load.kv_capacity_tokens {
                self.pool.caches.set_budget(index, tokens);
            }
            if let Some(load) = self.pool.replicas.get(index).and_then(Replica::load) {
                let sent = sent.min(self.pool.now);
                self.policy.on_event(PolicyEvent::Probed(index, load, sent));
            }
        }
        self.observe_silence(id);
    }

    pub(super) fn probe_failed(&mut self, id: ReplicaId) {
        let pool = &mut self.pool;
        pool.replicas.change(id, pool.now, |replica| {
            replica.probe.has_failed = true;
            replica.counts.false_hits.has_failed = true;
        });
        if let Some(replica) = pool.replicas.slot_of(id) {
            pool.adapters.forget_loaded(replica);
        }
        self.observe_silence(id);
    }

    /// Observes the silence of a replica, after a probe of it.
    fn observe_silence(&mut self, id: ReplicaId) {
        let (pool, counters) = (&mut self.pool, &mut self.outbox.counters);
        let now = pool.now;
        let Some(index) = pool.replicas.slot_of(id) else {
            return;
        };
        let Some(silence) = pool.replicas.observe_silence(index, now) else {
            return;
        };
        match judge_silence(&pool.replicas, &pool.in_flight, index, &silence, now) {
            Verdict::CheckAfter(pause) => {
                if let Some(replica) = pool.replicas.get_mut(index) {
                    replica.signs.check_after(pause);
                }
            }
            Verdict::Hangs { abandoned } => {
                pool.replicas.on_hang(index, now);
                counters.hung_replicas += 1;
                counters.abandoned += abandoned.len() as u64;
                for id in &abandoned {
                    if let Some(request) = pool.in_flight.get_mut(id) {
                        request.is_abandoned = true;
                    }
                }
                self.outbox.effects.push_back(Effect::Hung {
                    replica: id,
                    abandoned: abandoned.into(),
                });
            }
        }
    }

    pub(super) fn report_counters(&mut self, id: ReplicaId, counters: &EngineCounters, sent: Time) {
        let (now, pool) = (self.pool.now, &mut self.pool);
        let Some(index) = pool.replicas.slot_of(id) else {
            return;
        };
        match pool.replicas.on_counters(index, counters, sent.min(now)) {
            Some(CounterEvent::Restarted) => {
                pool.replicas.on_restart(id, now);
                pool.adapters.forget_loaded(index);
                pool.caches.on_restart(id, index);
                self.outbox.counters.engine_restarts += 1;
            }
            Some(CounterEvent::Grown(grown)) => {
                let (replicas, caches) = (&mut pool.replicas, &mut pool.caches);
                replicas.learn_counters(index, &grown, now);
                if let Some(ratio) = replicas.counter_sums().tokens_per_estimate()
                    && replicas.signals.token_length.teach(Source::Counters, now)
                {
                    caches.token_length.learn_counted(ratio);
                }
                if let Some(share) = replicas.counter_sums().answer_hit_share()
                    && !replicas.signals.cache_hits.is_recent(Source::Usage, now)
                {
                    caches.answers.learn_counted(share);
                }
            }
            Some(CounterEvent::SeveralFound) => pool.replicas.forget_counters(index),
            None => {}
        }
    }

    pub(super) fn add(&mut self, id: ReplicaId, name: String, role: Role) {
        let pool = &mut self.pool;
        if pool.replicas.slot_of(id).is_some() {
            return;
        }
        let Some(index) = pool.caches.index.join() else {
            self.outbox.counters.replicas_refused += 1;
            return;
        };
        self.policy
            .on_event(PolicyEvent::ReplicaAdded(index, &name));
        pool.replicas
            .add(index, Replica::new(id, name, role), pool.now);
    }

    /// Changes a replica, which gets new requests afterwards or does not.
    pub(super) fn assign(
        &mut self,
        id: ReplicaId,
        gets_requests: bool,
        change: impl FnOnce(&mut Replica),
    ) {
        let Some(index) = self.pool.replicas.slot_of(id) else {
            return;
        };
        // The queued requests that the replica lost must not go to it.
        while gets_requests && self.unpinning.contains(index) {
            self.unpin(index);
        }
        self.pool.replicas.change(id, self.pool.now, change);
        if !gets_requests {
            self.withdraw(index, UnpinReason::Unavailable);
        }
    }

    pub(super) fn remove(&mut self, id: ReplicaId) {
        let pool = &mut self.pool;
        if let Some(index) = pool.replicas.slot_of(id) {
            self.policy.on_event(PolicyEvent::ReplicaRemoved(index));
            pool.replicas.remove(id, pool.now);
            pool.caches.remove(id, index);
            pool.adapters.remove(index);
            self.withdraw(index, UnpinReason::Removed);
        }
    }

    /// Removes a replica from the preferences and the restrictions of queued requests. The requests that waited for it are offered the
    /// others again.
    fn withdraw(&mut self, index: ReplicaIndex, reason: UnpinReason) {
        self.service.needs_review |= self.pool.queue.forget_preferred(index);
        self.unpinning.add(index, reason);
        self.unpin(index);
    }

    /// Removes a replica from more restrictions of queued requests.
    pub(super) fn unpin(&mut self, index: ReplicaIndex) {
        let (queue, prefixes) = (&mut self.pool.queue, &mut self.pool.caches.index);
        for seq in self.unpinning.unpin(index, queue, prefixes) {
            self.reject_queued(seq, RejectReason::EmptySubset);
        }
    }

    /// Applies a placement of a sibling.
    pub(super) fn shared(&mut self, placement: &Placement) {
        let (pool, counters) = (&mut self.pool, &mut self.outbox.counters);
        let (parent, blocks) = (placement.parent, &placement.blocks);
        counters.placements_received += 1;
        let is_attached = match placement.target {
            Target::Replica(id) => pool.replicas.slot_of(id).is_some_and(|slot| {
                pool.on_sibling_push(slot, placement.uncached_tokens);
                pool.caches.index.attach(slot, parent, blocks)
            }),
            Target::Peer(id) => pool.peers.on_shared(id, parent, blocks, pool.now),
        };
        counters.placements_unattached += u64::from(!is_attached);
    }
}
