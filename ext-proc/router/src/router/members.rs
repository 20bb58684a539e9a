//! Members of a pool: replicas and peers that join, leave, change or are probed.

use core::time::Duration;

use super::Router;
use super::reject::UnpinReason;
use crate::policy::PolicyEvent;
use crate::replica::Replica;
use crate::replica_index::ReplicaIndex;
use crate::{Load, PeerId, PeerReport, ReplicaId, Role, Time};

impl Router {
    pub(super) fn on_probe(&mut self, id: ReplicaId, load: Load, sent: Time) {
        let news = self.pool.on_probe(id, Some(load), sent);
        if news && let Some(tokens) = load.kv_capacity_tokens {
            self.budget(id, tokens);
        }
        if news
            && let Some(index) = self.pool.replicas.slot_of(id)
            && let Some(load) = self.pool.replicas.get(index).and_then(Replica::load)
        {
            let sent = sent.min(self.pool.now);
            self.policy.on_event(PolicyEvent::Probed(index, load, sent));
        }
        self.observe_silence(id);
    }

    /// Tells the policy when a replica had a first token.
    pub(super) fn on_first_token(&mut self, index: Option<ReplicaIndex>, at: Time) {
        if let Some(index) = index {
            self.policy.on_event(PolicyEvent::FirstToken(index, at));
        }
    }

    pub(super) fn probe_failed(&mut self, id: ReplicaId) {
        let now = self.pool.now;
        self.pool.replicas.change(id, now, |replica| {
            replica.has_probe_failed = true;
            replica.false_hits.has_failed = true;
        });
        if let Some(replica) = self.pool.replicas.slot_of(id) {
            self.pool.adapters.forget_loaded(replica);
        }
        self.observe_silence(id);
    }

    pub(super) fn add(&mut self, id: ReplicaId, name: String, role: Role) {
        if self.pool.replicas.slot_of(id).is_some() {
            return;
        }
        let Some(index) = self.pool.index.join() else {
            self.counters.replicas_refused += 1;
            return;
        };
        let event = PolicyEvent::ReplicaAdded(index, &name);
        self.policy.on_event(event);
        self.pool
            .replicas
            .add(index, Replica::new(id, name, role), self.pool.now);
    }

    pub(super) fn change_role(&mut self, id: ReplicaId, role: Role) {
        let Some(index) = self.pool.replicas.slot_of(id) else {
            return;
        };
        self.finish_unpin(index);
        let now = self.pool.now;
        self.pool
            .replicas
            .change(id, now, |replica| replica.role = role);
        if !role.has_requests() {
            self.forget_preferred(index);
            self.unpin(index, UnpinReason::Unavailable);
        }
    }

    pub(super) fn add_peer(&mut self, peer: PeerId, name: String) {
        self.pool.peers.add(peer, name, self.pool.now);
        self.divide_index_memory();
    }

    pub(super) fn remove_peer(&mut self, peer: PeerId) {
        self.pool.peers.remove(peer, self.pool.now);
        self.divide_index_memory();
    }

    pub(super) fn drain(&mut self, id: ReplicaId) {
        if let Some(index) = self.pool.replicas.slot_of(id) {
            self.set_draining(id, true);
            self.forget_preferred(index);
            self.unpin(index, UnpinReason::Unavailable);
        }
    }

    pub(super) fn resume(&mut self, id: ReplicaId) {
        if let Some(index) = self.pool.replicas.slot_of(id) {
            self.finish_unpin(index);
            self.set_draining(id, false);
        }
    }

    fn set_draining(&mut self, id: ReplicaId, draining: bool) {
        let now = self.pool.now;
        self.pool
            .replicas
            .change(id, now, |replica| replica.draining = draining);
    }

    pub(super) fn remove(&mut self, id: ReplicaId) {
        let Some(index) = self.pool.replicas.slot_of(id) else {
            return;
        };
        self.policy.on_event(PolicyEvent::ReplicaRemoved(index));
        self.pool.replicas.remove(id, self.pool.now);
        self.pool.answers.removed(id);
        self.pool.sessions.removed(id);
        self.pool.stored.removed(id);
        self.forgetting.remove(index);
        self.claims.remove(index);
        self.pool.adapters.remove(index);
        self.forget_preferred(index);
        self.unpin(index, UnpinReason::Removed);
    }

    /// Clears this replica as a preferred one; the requests that waited for it are offered the others again.
    fn forget_preferred(&mut self, index: ReplicaIndex) {
        self.service.needs_review |= self.pool.queue.forget_preferred(index);
    }

    pub(super) fn peer_reported(
        &mut self,
        peer: PeerId,
        report: PeerReport,
        as_of: Time,
        round_trip: Duration,
    ) {
        let now = self.pool.now;
        self.pool
            .peers
            .on_report(peer, report, as_of, round_trip, now);
    }
}
