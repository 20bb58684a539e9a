//! The sets that decisions read: available, healthy, idle, by load.
//!
//! An event changes one replica. The replica is removed from the sets, changed, and inserted where it belongs.

use super::{CostInputs, Rank, Replicas};
use crate::replica::Replica;
use crate::replica_index::ReplicaIndex;
use crate::{Availability, Push, ReplicaId, Time};

impl Replicas {
    /// Applies the timers that are due: stale probes and trials.
    pub(crate) fn expire(&mut self, now: Time) {
        while let Some((time, slot)) = self.expiries.first().copied() {
            if time > now {
                return;
            }
            self.change_slot(slot, now, |_| ());
        }
    }

    /// Replaces the availability rules.
    pub(crate) fn set_rules(
        &mut self,
        push: Push,
        probe_stale_after: core::time::Duration,
        now: Time,
    ) {
        for slot in self.slots.values().copied().collect::<Vec<_>>() {
            self.unlist(slot);
        }
        self.rules.push = push;
        self.rules.probe_stale_after = probe_stale_after;
        for slot in self.slots.values().copied().collect::<Vec<_>>() {
            self.list(slot, now);
            self.set_timer(slot, now);
        }
        self.update_panic_mode(now);
    }

    pub(super) fn change(&mut self, id: ReplicaId, now: Time, change: impl FnOnce(&mut Replica)) {
        if let Some(slot) = self.slot_of(id) {
            self.change_slot(slot, now, change);
        }
    }

    pub(super) fn change_slot(
        &mut self,
        slot: ReplicaIndex,
        now: Time,
        change: impl FnOnce(&mut Replica),
    ) {
        self.unlist(slot);
        if let Some(Some(replica)) = self.replicas.get_mut(slot.index()) {
            change(replica);
        }
        self.list(slot, now);
        self.set_timer(slot, now);
        self.update_panic_mode(now);
    }

    /// Inserts a replica into the sets.
    pub(super) fn list(&mut self, slot: ReplicaIndex, now: Time) {
        let Some(Some(replica)) = self.replicas.get(slot.index()) else {
            return;
        };
        let is_open = |throttled| {
            replica.availability(&self.rules, now, throttled) == Availability::Available
        };
        let (open, throttled) = (is_open(false), is_open(true));
        // A replica on trial does not throttle the others.
        let idle = open && replica.is_idle() && replica.breaker.is_closed();
        let healthy = !replica.draining && replica.ill(&self.rules, now).is_none();
        let rank = Rank::new((replica.outstanding, replica.turn, slot));
        if let Some(place) = self.ranks.get_mut(slot.index()) {
            *place = rank;
        }
        if let Some(place) = self.cost_inputs.get_mut(slot.index()) {
            *place = CostInputs::of(replica);
        }
        self.staying.set(slot, !replica.draining);
        self.healthy.set(slot, healthy);
        self.proven
            .set(slot, healthy && replica.breaker.is_closed());
        self.throttled.set(slot, throttled);
        self.idle.set(slot, idle);
        if self.available.set(slot, open) && open {
            self.by_load.insert(rank);
            self.freed.push(slot);
            let free_capacity = replica.free_capacity(&self.rules);
            self.free_capacity += u64::from(free_capacity);
            if let Some(place) = self.free_capacities.get_mut(slot.index()) {
                *place = free_capacity;
            }
        }
    }

    /// Removes a replica from the sets whose keys are about to change.
    pub(super) fn unlist(&mut self, slot: ReplicaIndex) {
        let Some(Some(replica)) = self.replicas.get(slot.index()) else {
            return;
        };
        if self.available.set(slot, false) {
            let key = (replica.outstanding, replica.turn, slot);
            self.by_load.remove(&Rank::new(key));
            let free_capacity = self
                .free_capacities
                .get(slot.index())
                .copied()
                .unwrap_or_default();
            self.free_capacity = self.free_capacity.saturating_sub(u64::from(free_capacity));
        }
        self.throttled.set(slot, false);
        if self.idle.set(slot, false) && self.idle.is_empty() {
            self.throttle_ended = true;
        }
    }

    /// Sets or clears the timer of a replica.
    pub(super) fn set_timer(&mut self, slot: ReplicaIndex, now: Time) {
        let next = self
            .get(slot)
            .and_then(|replica| replica.next_change(&self.rules, now));
        let Some(timer) = self.timers.get_mut(slot.index()) else {
            return;
        };
        let old = core::mem::replace(timer, next);
        if old == next {
            return;
        }
        if let Some(old) = old {
            self.expiries.remove(&(old, slot));
        }
        if let Some(next) = next {
            self.expiries.insert((next, slot));
        }
    }

    /// Enters or leaves panic mode. Failing replicas are excluded only while another one has a good probe and a closed breaker;
    /// under `blind`, unhealthy ones only while a healthy one exists.
    pub(super) fn update_panic_mode(&mut self, now: Time) {
        let is_probe_panic = self.rules.push == Push::Blind && self.healthy.is_empty();
        let is_breaker_panic = !self.healthy.is_empty() && self.proven.is_empty();
        let before = self.rules;
        let has_recovered = before.is_breaker_panic && !self.proven.is_empty();
        if (is_probe_panic, is_breaker_panic) == (before.is_probe_panic, before.is_breaker_panic) {
            return;
        }
        let all: Vec<ReplicaIndex> = self.all().collect();
        for slot in &all {
            self.unlist(*slot);
        }
        self.rules.is_probe_panic = is_probe_panic;
        self.rules.is_breaker_panic = is_breaker_panic;
        for slot in all {
            if has_recovered && let Some(Some(replica)) = self.replicas.get_mut(slot.index()) {
                replica.breaker.admit_trial_now(now);
                self.set_timer(slot, now);
            }
            self.list(slot, now);
        }
    }
}
