//! The sets that decisions read: available, healthy, by load.
//!
//! An event changes one replica. The replica is removed from the sets, changed, and inserted where it belongs.

use super::{CostInputs, Rank, Replicas};
use crate::replica::{Capacity, CapacityRules, Replica};
use crate::replica_index::ReplicaIndex;
use crate::{Push, ReplicaId, Time};

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

    pub(crate) fn set_rules(
        &mut self,
        push: Push,
        probe_stale_after: core::time::Duration,
        now: Time,
    ) {
        let rules = CapacityRules {
            push,
            probe_stale_after,
            ..self.rules
        };
        self.apply_rules(rules, now);
        self.update_panic_mode(now);
    }

    /// Changes a replica, and the sets with it.
    pub(crate) fn change(&mut self, id: ReplicaId, now: Time, change: impl FnOnce(&mut Replica)) {
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
        if let Some(replica) = self.get_mut(slot) {
            change(replica);
        }
        self.list(slot, now);
        self.update_panic_mode(now);
    }

    /// Inserts a replica into the sets, and sets its timer. A prefill replica is in a set of its own, so no request is dispatched to it.
    pub(super) fn list(&mut self, slot: ReplicaIndex, now: Time) {
        let rules = self.rules;
        let Some(Some(replica)) = self.replicas.get_mut(slot.index()) else {
            return;
        };
        let capacity = replica.capacity(&rules, now);
        let is_open = matches!(capacity, Capacity::Free(_));
        let has_requests = replica.role.has_requests();
        let is_staying = has_requests && !replica.draining;
        let is_healthy = is_staying && replica.probe_fault(&rules, now).is_none();
        let is_proven = is_healthy && replica.breaker.is_closed();
        let rank = Rank::new(replica.requests(), replica.turn, slot);
        if let Some(place) = self.ranks.get_mut(slot.index()) {
            *place = rank;
        }
        if let Some(place) = self.cost_inputs.get_mut(slot.index()) {
            *place = CostInputs::of(replica);
            self.model.bound.lower(place);
        }
        self.sets.staying.set(slot, is_staying);
        self.sets.healthy.set(slot, is_healthy);
        self.sets.proven.set(slot, is_proven);
        self.sets.prefillers.set(slot, is_open && !has_requests);
        if is_open && has_requests && self.sets.available.set(slot, true) {
            self.by_load.insert(rank);
            self.freed.push(slot);
            replica.listed.capacity = capacity.free();
            self.free_capacity += u64::from(replica.listed.capacity);
        }
        let next = replica.next_change(capacity, &rules, now);
        let old = core::mem::replace(&mut replica.listed.timer, next);
        self.set_timer(slot, old, next);
    }

    fn set_timer(&mut self, slot: ReplicaIndex, old: Option<Time>, next: Option<Time>) {
        if old != next {
            if let Some(old) = old {
                self.expiries.remove(&(old, slot));
            }
            self.expiries.extend(next.map(|next| (next, slot)));
        }
    }

    /// Removes a replica from the sets whose keys are about to change.
    pub(super) fn unlist(&mut self, slot: ReplicaIndex) {
        let Some(Some(replica)) = self.replicas.get(slot.index()) else {
            return;
        };
        if self.sets.available.set(slot, false) {
            let rank = Rank::new(replica.requests(), replica.turn, slot);
            self.by_load.remove(&rank);
            let listed = u64::from(replica.listed.capacity);
            self.free_capacity = self.free_capacity.saturating_sub(listed);
        }
    }

    /// Enters or leaves panic mode. Failing replicas are excluded only while another one has a good probe and a closed breaker;
    /// under `blind`, unhealthy ones only while a healthy one exists.
    pub(super) fn update_panic_mode(&mut self, now: Time) {
        loop {
            let rules = CapacityRules {
                is_probe_panic: self.rules.push == Push::Blind && self.sets.healthy.is_empty(),
                is_breaker_panic: !self.sets.healthy.is_empty() && self.sets.proven.is_empty(),
                ..self.rules
            };
            if rules == self.rules {
                return;
            }
            // Listing a replica again may find its probe stale.
            self.apply_rules(rules, now);
        }
    }

    /// Replaces the rules. When panic mode ends, each open breaker admits a trial at once.
    fn apply_rules(&mut self, rules: CapacityRules, now: Time) {
        let has_recovered = self.rules.is_breaker_panic && !self.sets.proven.is_empty();
        let all: Vec<ReplicaIndex> = self.all().collect();
        for slot in &all {
            self.unlist(*slot);
        }
        self.rules = rules;
        for slot in all {
            if has_recovered && let Some(replica) = self.get_mut(slot) {
                replica.breaker.admit_trial_now(now);
            }
            self.list(slot, now);
        }
    }
}
