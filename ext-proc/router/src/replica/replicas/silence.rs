//! Silence of replicas: which replicas show no sign of life while others do.

use core::time::Duration;

use super::Replicas;
use crate::replica::Replica;
use crate::replica_index::ReplicaIndex;
use crate::{ReplicaId, Time};

/// Silence of a replica that has requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    /// Time without a sign of life, as far as observed.
    pub(crate) lasts: Duration,
    /// Whether a healthy replica would have shown a sign while it writes answers.
    pub(crate) is_certain: bool,
    /// Whether the engine claims to run requests, and its counters stand still.
    pub(crate) are_counters_frozen: bool,
}

impl Replica {
    /// The silence of the replica, while its circuit breaker is not open already.
    fn silence(&self, now: Time) -> Option<Silence> {
        if !self.breaker.is_judging() {
            return None;
        }
        let observed = self.signs.silent_for();
        let on_trial = self.breaker.trial_since().map(|since| now.since(since));
        let has_live_counters = self.signs.has_live_counters();
        let claims_to_run = self
            .load()
            .and_then(|load| load.running)
            .is_some_and(|running| running > 0);
        Some(Silence {
            lasts: on_trial.map_or(observed, |on_trial| on_trial.min(observed)),
            is_certain: has_live_counters || self.probe.has_failed,
            are_counters_frozen: has_live_counters && !self.probe.has_failed && claims_to_run,
        })
    }
}

impl Replicas {
    /// Observes the silence of a replica, and returns it when the replica's requests are to be checked.
    pub(crate) fn observe_silence(&mut self, slot: ReplicaIndex, now: Time) -> Option<Silence> {
        let gap_max = self.rules.probe_stale_after;
        let replica = self.get_mut(slot)?;
        if !replica.role.has_requests() {
            return None;
        }
        let is_idle = replica.outstanding() == 0;
        let is_due = replica.signs.observe(is_idle, gap_max, now);
        is_due.then(|| replica.silence(now)).flatten()
    }

    /// Whether another replica with a closed breaker has shown a sign of life within this time. Otherwise the pool is slow, and
    /// no single replica is at fault.
    pub(crate) fn are_others_alive(&self, slot: ReplicaIndex, within: Duration, now: Time) -> bool {
        let since = now.before(within);
        let mut others = self.sets.proven.iter().filter(|other| *other != slot);
        others.any(|other| {
            self.get(other)
                .is_some_and(|other| other.signs.has_sign_since(since))
        })
    }

    /// Handles a replica that hangs.
    pub(crate) fn on_hang(&mut self, slot: ReplicaIndex, now: Time) {
        self.change_slot(slot, now, |replica| {
            replica.breaker.on_hang(now);
            replica.signs.restart_silence(now);
        });
    }

    /// Whether a replica has shown a sign of life at this time or later. A replica that left counts as alive.
    pub(crate) fn has_sign_since(&self, id: ReplicaId, time: Time) -> bool {
        let replica = self.slot_of(id).and_then(|slot| self.get(slot));
        replica.is_none_or(|replica| replica.signs.has_sign_since(time))
    }
}
