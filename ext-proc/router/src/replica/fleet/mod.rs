//! All replicas of a pool, with what a decision asks of them kept ready: who is available, and who has least to do.
//!
//! Each event changes one replica, so the sets are adjusted for that one; nothing here walks over the pool on the
//! path of a request. Two things change by themselves, a probe's age and a failing replica's back-off: a timer for the next.

mod estimate;

use std::collections::{BTreeMap, BTreeSet};

use super::{Backlog, Evidence, Flow, Pace, Replica, Rules, Sent, Speed};
use crate::slots::{Slot, SlotSet};
use crate::{Availability, Load, Push, ReplicaId, ReplicaStatus, Time};

/// All replicas of a pool.
#[derive(Debug)]
pub(crate) struct Fleet {
    rules: Rules,
    replicas: Vec<Option<Replica>>,
    slots: BTreeMap<ReplicaId, Slot>,
    /// Those that are not draining.
    staying: SlotSet,
    healthy: SlotSet,
    /// Those of them whose requests do not fail.
    proven: SlotSet,
    available: SlotSet,
    /// Those that are available even while another one idles.
    calm: SlotSet,
    /// Those that are available and have nothing to do.
    idle: SlotSet,
    /// The available ones, least outstanding first, then who has waited longest for a request.
    by_load: BTreeSet<(u32, u64, Slot)>,
    /// How many requests they can start, summed, and of each.
    room: u64,
    rooms: Vec<u32>,
    /// When replicas change by themselves, in order of time and by slot.
    expiries: BTreeSet<(Time, Slot)>,
    timers: Vec<Option<Time>>,
    /// Who has become available since this was last asked.
    freed: Vec<Slot>,
    /// Whether the last idle replica got something to do since: then others take in more.
    calm_ended: bool,
    turn: u64,
    /// How fast the pool is.
    speed: Speed,
    pace: Pace,
    /// How long an answer is, on average, in tokens.
    output_tokens: f64,
    /// What the pool is sent.
    flow: Flow,
}

impl Fleet {
    pub(crate) fn new(push: Push, probe_stale_after: core::time::Duration) -> Self {
        Self {
            rules: Rules {
                push,
                probe_stale_after,
                nobody_healthy: false,
                nobody_trusted: false,
            },
            replicas: Vec::new(),
            slots: BTreeMap::new(),
            staying: SlotSet::default(),
            healthy: SlotSet::default(),
            proven: SlotSet::default(),
            available: SlotSet::default(),
            calm: SlotSet::default(),
            idle: SlotSet::default(),
            by_load: BTreeSet::new(),
            room: 0,
            rooms: Vec::new(),
            expiries: BTreeSet::new(),
            timers: Vec::new(),
            freed: Vec::new(),
            calm_ended: false,
            turn: 0,
            speed: Speed::default(),
            pace: Pace::default(),
            output_tokens: estimate::OUTPUT_TOKENS,
            flow: Flow::default(),
        }
    }

    /// Who may be sent a request now.
    ///
    /// While a replica idles, busy ones take in less at a time: a request that would wait inside a busy replica
    /// is better off on the idle one, however well it matches.
    pub(crate) fn available(&self) -> &SlotSet {
        if self.is_calm() {
            &self.calm
        } else {
            &self.available
        }
    }

    /// Who may be sent one, as of a time when the sets were not brought up to date: for explanations only.
    pub(crate) fn available_at(&self, now: Time) -> SlotSet {
        let mut available = SlotSet::default();
        for slot in self.everybody() {
            let open = self.availability(slot, now) == Some(Availability::Available);
            available.set(slot, open);
        }
        available
    }

    /// How many can be sent a request before they are full, be it that another one idles now.
    pub(crate) const fn available_in_all(&self) -> usize {
        self.available.len()
    }

    /// Everybody that gets new requests, available or not.
    pub(crate) const fn staying(&self) -> &SlotSet {
        &self.staying
    }

    /// Everybody that gets new requests, whose last probe, if any, was good, and whose requests do not fail; when that
    /// is nobody, those whose requests do.
    pub(crate) const fn trusted(&self) -> &SlotSet {
        if self.rules.nobody_trusted {
            &self.healthy
        } else {
            &self.proven
        }
    }

    /// Everybody, in order of identity.
    pub(crate) fn everybody(&self) -> impl Iterator<Item = Slot> + '_ {
        self.slots.values().copied()
    }

    /// Whether it takes another request, or why not.
    pub(crate) fn availability(&self, slot: Slot, now: Time) -> Option<Availability> {
        self.get(slot)
            .map(|replica| replica.availability(&self.rules, now, self.is_calm()))
    }

    /// Whether there is a replica whose health is not in doubt.
    pub(crate) fn any_healthy(&self) -> bool {
        let unproven = |slot| self.get(slot).is_none_or(|r| r.load().is_none());
        match self.rules.push {
            Push::Pending => self.healthy.iter().any(|slot| !unproven(slot)),
            Push::Outstanding { .. } | Push::Blind => !self.healthy.is_empty(),
        }
    }

    /// The available ones, least outstanding first.
    pub(crate) fn by_load(&self) -> impl DoubleEndedIterator<Item = Slot> + '_ {
        self.by_load.iter().map(|(_, _, slot)| *slot)
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&Replica> {
        self.replicas.get(slot.index())?.as_ref()
    }

    pub(crate) fn slot_of(&self, id: ReplicaId) -> Option<Slot> {
        self.slots.get(&id).copied()
    }

    pub(crate) fn id_of(&self, slot: Slot) -> Option<ReplicaId> {
        self.get(slot).map(|replica| replica.id)
    }

    /// Nobody asks who has become available so far.
    pub(crate) fn forget_freed(&mut self) {
        self.freed.clear();
        self.calm_ended = false;
    }

    /// Whether those that take in less while another one idles have become available since this was last asked.
    pub(crate) fn take_calm_ended(&mut self) -> bool {
        core::mem::take(&mut self.calm_ended) && !self.is_calm()
    }

    /// Who has become available since this was last asked, and still is.
    pub(crate) fn take_freed(&mut self) -> Vec<Slot> {
        let mut freed = core::mem::take(&mut self.freed);
        if core::mem::take(&mut self.calm_ended) {
            freed.extend(self.available.iter());
        }
        freed.sort_unstable();
        freed.dedup();
        freed.retain(|slot| self.available.contains(*slot));
        freed
    }

    pub(crate) fn status(&self, slot: Slot, now: Time) -> Option<ReplicaStatus> {
        self.get(slot)
            .map(|replica| replica.status(&self.rules, now, self.is_calm()))
    }

    /// When the next replica changes by itself.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.expiries.first().map(|(time, _)| *time)
    }

    pub(crate) fn add(&mut self, slot: Slot, mut replica: Replica, now: Time) {
        replica.backlog = Backlog::new(self.pace);
        if self.replicas.len() <= slot.index() {
            self.replicas.resize_with(slot.index() + 1, || None);
            self.timers.resize(slot.index() + 1, None);
            self.rooms.resize(slot.index() + 1, 0);
        }
        self.slots.insert(replica.id, slot);
        if let Some(place) = self.replicas.get_mut(slot.index()) {
            *place = Some(replica);
        }
        self.list(slot, now);
        self.check_refuge(now);
    }

    /// A replica left; its slot is free for the index to dispose of.
    pub(crate) fn remove(&mut self, id: ReplicaId, now: Time) -> Option<Slot> {
        let slot = self.slots.remove(&id)?;
        self.unlist(slot);
        self.staying.set(slot, false);
        self.healthy.set(slot, false);
        self.proven.set(slot, false);
        if let Some(place) = self.replicas.get_mut(slot.index()) {
            *place = None;
        }
        self.set_timer(slot, now);
        self.check_refuge(now);
        Some(slot)
    }

    pub(crate) fn drain(&mut self, id: ReplicaId, now: Time) {
        self.change(id, now, |replica| replica.draining = true);
    }

    /// A probe was read; says whether it was news.
    pub(crate) fn probed(&mut self, id: ReplicaId, load: Load, sent: Time, now: Time) -> bool {
        let mut news = false;
        self.change(id, now, |replica| {
            // Answers overtake each other, and load reports come from requests sent long ago.
            let sent = sent.min(now);
            if replica.probe.is_some_and(|(_, last)| sent < last) {
                return;
            }
            news = true;
            let known = replica.load().and_then(|load| load.kv_capacity_tokens);
            let load = Load {
                kv_capacity_tokens: load.kv_capacity_tokens.or(known),
                ..load
            };
            replica.headroom.probed(&load, sent, replica.outstanding);
            replica.progress.probed(&load, sent);
            replica.backlog.probed(load.pending, sent);
            replica.probe = Some((load, sent));
            replica.failed = false;
        });
        news
    }

    pub(crate) fn probe_failed(&mut self, id: ReplicaId, now: Time) {
        self.change(id, now, |replica| replica.failed = true);
    }

    /// A request was sent to a replica, which has to compute so many tokens of its prompt.
    pub(crate) fn dispatched(&mut self, slot: Slot, tokens: f64, now: Time) -> Option<Sent> {
        self.turn += 1;
        let turn = self.turn;
        self.flow.add(self.prefill_s(slot, tokens), now);
        let mut sent = None;
        self.change_slot(slot, now, |replica| {
            replica.outstanding += 1;
            replica.turn = turn;
            replica.headroom.pushed(now);
            replica.backlog.pushed(tokens, now);
            sent = Some(replica.breaker.sent(now));
        });
        sent
    }

    /// A sibling sent a request to a replica.
    pub(crate) fn pushed_by_sibling(&mut self, slot: Slot, now: Time) {
        self.turn += 1;
        let turn = self.turn;
        self.change_slot(slot, now, |replica| {
            replica.turn = turn;
            replica.headroom.pushed_by_sibling(now);
        });
    }

    /// How many requests the available replicas can start now, summed; `None` where nothing bounds it.
    pub(crate) const fn room(&self) -> Option<u64> {
        match self.rules.push {
            Push::Pending | Push::Outstanding { .. } => Some(self.room),
            Push::Blind => None,
        }
    }

    /// A request left a replica, and says this of it.
    pub(crate) fn released(&mut self, id: ReplicaId, sent: Sent, evidence: Evidence, now: Time) {
        self.change(id, now, |replica| {
            replica.outstanding = replica.outstanding.saturating_sub(1);
            if replica.is_idle() {
                replica.backlog.emptied();
            }
            replica.breaker.ended(sent, evidence, now);
        });
    }

    /// A request that had been sent to another replica ended at this one, and says this of it.
    pub(crate) fn stepped_in(&mut self, id: ReplicaId, evidence: Evidence, now: Time) {
        self.change(id, now, |replica| replica.breaker.stepped_in(evidence, now));
    }

    /// A predicted hit was false, or true; how many were false in a row.
    pub(crate) fn count_false_hit(&mut self, slot: Slot, is_false: bool) -> u32 {
        let Some(Some(replica)) = self.replicas.get_mut(slot.index()) else {
            return 0;
        };
        replica.false_hits = if is_false {
            replica.false_hits.saturating_add(1)
        } else {
            0
        };
        replica.false_hits
    }

    /// Probes that have become too old make their replicas unavailable, and failing ones are due for a trial.
    pub(crate) fn expire(&mut self, now: Time) {
        while let Some((time, slot)) = self.expiries.first().copied() {
            if time > now {
                return;
            }
            self.change_slot(slot, now, |_| ());
        }
    }

    /// Other rules.
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
        self.check_refuge(now);
    }

    fn is_calm(&self) -> bool {
        self.rules.push == Push::Pending && !self.idle.is_empty()
    }

    fn change(&mut self, id: ReplicaId, now: Time, change: impl FnOnce(&mut Replica)) {
        if let Some(slot) = self.slot_of(id) {
            self.change_slot(slot, now, change);
        }
    }

    fn change_slot(&mut self, slot: Slot, now: Time, change: impl FnOnce(&mut Replica)) {
        self.unlist(slot);
        if let Some(Some(replica)) = self.replicas.get_mut(slot.index()) {
            change(replica);
        }
        self.list(slot, now);
        self.set_timer(slot, now);
        self.check_refuge(now);
    }

    /// Enters a replica where it now belongs.
    fn list(&mut self, slot: Slot, now: Time) {
        let Some(Some(replica)) = self.replicas.get(slot.index()) else {
            return;
        };
        let is_open =
            |calm| replica.availability(&self.rules, now, calm) == Availability::Available;
        let (open, calm) = (is_open(false), is_open(true));
        // One that may be sent a single trial is no reason to send the others less.
        let idle = open && replica.is_idle() && replica.breaker.is_closed();
        let healthy = !replica.draining && replica.ill(&self.rules, now).is_none();
        let key = (replica.outstanding, replica.turn, slot);
        self.staying.set(slot, !replica.draining);
        self.healthy.set(slot, healthy);
        self.proven
            .set(slot, healthy && replica.breaker.is_closed());
        self.calm.set(slot, calm);
        self.idle.set(slot, idle);
        if self.available.set(slot, open) && open {
            self.by_load.insert(key);
            self.freed.push(slot);
            let room = replica.room(&self.rules);
            self.room += u64::from(room);
            if let Some(place) = self.rooms.get_mut(slot.index()) {
                *place = room;
            }
        }
    }

    /// Takes a replica out of what `list` entered it into, as far as its keys are about to change.
    fn unlist(&mut self, slot: Slot) {
        let Some(Some(replica)) = self.replicas.get(slot.index()) else {
            return;
        };
        if self.available.set(slot, false) {
            let key = (replica.outstanding, replica.turn, slot);
            self.by_load.remove(&key);
            let room = self.rooms.get(slot.index()).copied().unwrap_or_default();
            self.room = self.room.saturating_sub(u64::from(room));
        }
        self.calm.set(slot, false);
        if self.idle.set(slot, false) && self.idle.is_empty() {
            self.calm_ended = true;
        }
    }

    /// Sets the timer for a replica, or takes it away.
    fn set_timer(&mut self, slot: Slot, now: Time) {
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

    /// Failing replicas are left out only while there is another one with a good probe, and under blind pushing sick
    /// ones only while there is a healthy one.
    fn check_refuge(&mut self, now: Time) {
        let nobody_healthy = self.rules.push == Push::Blind && self.healthy.is_empty();
        let nobody_trusted = !self.healthy.is_empty() && self.proven.is_empty();
        let before = self.rules;
        let one_is_back = before.nobody_trusted && !self.proven.is_empty();
        if (nobody_healthy, nobody_trusted) == (before.nobody_healthy, before.nobody_trusted) {
            return;
        }
        let everybody: Vec<Slot> = self.everybody().collect();
        for slot in &everybody {
            self.unlist(*slot);
        }
        self.rules.nobody_healthy = nobody_healthy;
        self.rules.nobody_trusted = nobody_trusted;
        for slot in everybody {
            if one_is_back && let Some(Some(replica)) = self.replicas.get_mut(slot.index()) {
                replica.breaker.hasten(now);
                self.set_timer(slot, now);
            }
            self.list(slot, now);
        }
    }
}
