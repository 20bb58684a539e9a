//! Adapters (LoRA): which replicas list each of them, and which hold it in a slot.
//!
//! A replica's list of models names the adapters that it can serve; a request for one goes to such a replica only. Its
//! metrics page names the adapters of its running and waiting requests. That is not residency: an adapter without a
//! request keeps its slot until another one needs the slot. [`slots`] therefore keeps a belief, which every dispatch
//! changes at once, and which a report corrects only where it contradicts the belief.
//!
//! Rejected: residency as the last report has it. A probe would take an idle adapter for one that has to be loaded, and
//! requests between two probes would load the same adapter on several replicas.

mod slots;

use core::time::Duration;
use std::collections::BTreeMap;

use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::{AdapterKey, AdapterReport, Request, Time};
use slots::{AdapterSlots, SlotState};

/// The most adapters of a pool; a further one counts as unknown.
pub const ADAPTERS_MAX: usize = 4_096;
/// The most adapters that one replica lists.
pub const ADAPTERS_LISTED_MAX: usize = 1_024;
/// Share of a load that a free slot is worth to later requests: another adapter may need it.
const FREE_SLOT: f64 = 0.5;
/// Share of a load that a taken slot is worth to them: the evicted adapter had requests, and may get more.
const TAKEN_SLOT: f64 = 1.0;
/// The share of the time of a request until one of the running adapters has no request left.
const TURN: f64 = 0.5;

/// Adapters of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdapterStatus {
    /// Adapters that the replica can serve; `None` if it does not list them.
    pub listed: Option<Vec<AdapterKey>>,
    /// Adapters that the replica is believed to hold, least recently used first.
    pub loaded: Vec<AdapterKey>,
    /// Adapters whose requests wait for a slot.
    pub waiting: Vec<AdapterKey>,
    /// Number of slots, if the replica reports it.
    pub slots: Option<u32>,
}

/// State of the adapter of a request on a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum AdapterState {
    /// The replica holds the adapter.
    Loaded,
    /// The adapter waits for a slot already.
    Waiting,
    /// The replica has a free slot for the adapter.
    FreeSlot,
    /// Another adapter has to make room, and none of its requests runs.
    Evicts,
    /// Each slot has a running request.
    Full,
}

/// Cost of an adapter on a replica, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct AdapterCost {
    /// Time in which the replica loads the adapter and computes nothing.
    pub(crate) load_s: f64,
    /// Time until the request's adapter has a slot, and until earlier loads have ended.
    pub(crate) wait_s: f64,
    /// Time that the slot is expected to be worth to later requests.
    pub(crate) slot_s: f64,
}

/// The replicas of an adapter. One of the sets has a member.
#[derive(Debug, Default)]
struct AdapterReplicas {
    listers: ReplicaSet,
    holders: ReplicaSet,
}

#[derive(Debug, Default)]
struct ReplicaAdapters {
    listed: Option<Box<[AdapterKey]>>,
    slots: AdapterSlots,
}

/// The adapters of a pool.
#[derive(Debug, Default)]
pub(crate) struct Adapters {
    known: BTreeMap<AdapterKey, AdapterReplicas>,
    /// Replicas that ever told of an adapter. Empty in a pool without adapters, so that such a pool pays for one branch.
    replicas: BTreeMap<ReplicaIndex, ReplicaAdapters>,
    /// Slots of a replica that reports none.
    slots_presumed: u32,
    /// Time in which a replica loads an adapter.
    load: Duration,
}

impl Adapters {
    pub(crate) fn new(slots_presumed: u32, load: Duration) -> Self {
        Self {
            slots_presumed,
            load,
            ..Self::default()
        }
    }

    /// Replaces the number of slots of replicas that report none, and the time of a load.
    pub(crate) fn configure(&mut self, slots: u32, load: Duration) {
        (self.slots_presumed, self.load) = (slots, load);
        for place in self.replicas.values_mut() {
            place.slots.presume(slots);
        }
    }

    /// The replicas that list the adapter of a request; `None` if any replica may serve it.
    pub(crate) fn listers(&self, request: &Request) -> Option<&ReplicaSet> {
        let listers = &self.known.get(&request.adapter?)?.listers;
        (!listers.is_empty()).then_some(listers)
    }

    /// The replicas that hold an adapter, if there are any.
    pub(crate) fn holders(&self, adapter: AdapterKey) -> Option<&ReplicaSet> {
        let holders = &self.known.get(&adapter)?.holders;
        (!holders.is_empty()).then_some(holders)
    }

    /// Replaces the list of a replica.
    pub(crate) fn list(&mut self, replica: ReplicaIndex, mut adapters: Vec<AdapterKey>) {
        adapters.sort_unstable();
        adapters.dedup();
        adapters.truncate(ADAPTERS_LISTED_MAX);
        if adapters.is_empty() && !self.replicas.contains_key(&replica) {
            return;
        }
        self.unlist(replica);
        adapters.retain(|adapter| self.set(*adapter, replica, true, |r| &mut r.listers));
        self.place(replica).listed = Some(adapters.into());
    }

    /// Corrects the belief about a replica by a report that was asked for at `sent`.
    pub(crate) fn report(
        &mut self,
        replica: ReplicaIndex,
        report: &AdapterReport,
        sent: Time,
        now: Time,
    ) {
        let load = self.load;
        self.change(replica, |slots| slots.report(report, sent, load, now));
    }

    /// Registers a dispatched request; returns the state of its adapter before.
    pub(crate) fn on_dispatch(
        &mut self,
        replica: ReplicaIndex,
        adapter: AdapterKey,
        now: Time,
    ) -> AdapterState {
        let load = self.load;
        let before = self.state(replica, adapter);
        match self.replicas.get_mut(&replica) {
            // The sets of holders stay as they are.
            Some(place) if before == AdapterState::Loaded => place.slots.use_loaded(adapter, now),
            _ => self.change(replica, |slots| slots.on_dispatch(adapter, load, now)),
        }
        before
    }

    /// Registers the end of a request.
    pub(crate) fn on_release(&mut self, replica: ReplicaIndex, adapter: AdapterKey, now: Time) {
        let load = self.load;
        if let Some(place) = self.replicas.get_mut(&replica)
            && place.slots.on_release(adapter)
        {
            self.change(replica, |slots| slots.settle(load, now));
        }
    }

    /// Forgets what a replica holds: it may have restarted. Its list stays until the next one.
    pub(crate) fn forget_loaded(&mut self, replica: ReplicaIndex) {
        if self.replicas.contains_key(&replica) {
            self.change(replica, AdapterSlots::clear);
        }
    }

    /// Forgets a replica.
    pub(crate) fn remove(&mut self, replica: ReplicaIndex) {
        if !self.replicas.contains_key(&replica) {
            return;
        }
        self.change(replica, AdapterSlots::clear);
        self.unlist(replica);
        self.replicas.remove(&replica);
    }

    /// Time until a replica has ended its loads, in seconds.
    pub(crate) fn loading_s(&self, replica: ReplicaIndex, now: Time) -> f64 {
        if self.replicas.is_empty() {
            return 0.0;
        }
        let place = self.replicas.get(&replica);
        place.map_or(0.0, |place| place.slots.loading_s(now))
    }

    /// State of an adapter on a replica.
    pub(crate) fn state(&self, replica: ReplicaIndex, adapter: AdapterKey) -> AdapterState {
        let place = self.replicas.get(&replica);
        place.map_or(AdapterState::FreeSlot, |place| place.slots.state(adapter))
    }

    /// Cost of an adapter on a replica; `service_s` is the time that a request occupies a replica.
    #[expect(clippy::cast_precision_loss, reason = "a number of slots")]
    pub(crate) fn cost(
        &self,
        replica: ReplicaIndex,
        adapter: AdapterKey,
        service_s: f64,
    ) -> AdapterCost {
        let load_s = self.load.as_secs_f64();
        let state = self.state(replica, adapter);
        let turn_s = || {
            let slots = self.replicas.get(&replica).map(|place| &place.slots);
            let ahead = slots.map_or(0.0, |slots| {
                slots.waiting_beside(adapter) as f64 / slots.count() as f64
            });
            (TURN + ahead) * service_s
        };
        let of_load = |wait_s, slot_share: f64| AdapterCost {
            load_s,
            wait_s,
            slot_s: slot_share * load_s,
        };
        match state {
            AdapterState::Loaded => AdapterCost::default(),
            // The load is that of an earlier request: it delays nothing more than it does anyway.
            AdapterState::Waiting => AdapterCost {
                wait_s: turn_s() + load_s,
                ..AdapterCost::default()
            },
            AdapterState::FreeSlot => of_load(0.0, FREE_SLOT),
            AdapterState::Evicts => of_load(0.0, TAKEN_SLOT),
            AdapterState::Full => of_load(turn_s(), TAKEN_SLOT),
        }
    }

    /// Adapters of a replica, if it ever told of one.
    pub(crate) fn status(&self, replica: ReplicaIndex) -> Option<AdapterStatus> {
        let place = self.replicas.get(&replica)?;
        let of = |state| place.slots.of_state(state).collect();
        Some(AdapterStatus {
            listed: place.listed.as_deref().map(<[AdapterKey]>::to_vec),
            loaded: of(SlotState::Loaded),
            waiting: of(SlotState::Waiting),
            slots: place.slots.reported(),
        })
    }

    /// Changes the slots of a replica, and keeps the sets of holders in step.
    fn change(&mut self, replica: ReplicaIndex, change: impl FnOnce(&mut AdapterSlots)) {
        let mut slots = core::mem::take(&mut self.place(replica).slots);
        for adapter in slots.of_state(SlotState::Loaded) {
            self.set(adapter, replica, false, |r| &mut r.holders);
        }
        change(&mut slots);
        slots.retain_loaded(|adapter| self.set(adapter, replica, true, |r| &mut r.holders));
        if let Some(place) = self.replicas.get_mut(&replica) {
            place.slots = slots;
        }
    }

    /// The adapters of a replica, as it told them and as it is believed to hold them.
    fn place(&mut self, replica: ReplicaIndex) -> &mut ReplicaAdapters {
        let slots = self.slots_presumed;
        let place = self.replicas.entry(replica);
        place.or_insert_with(|| ReplicaAdapters {
            listed: None,
            slots: AdapterSlots::new(slots),
        })
    }

    fn unlist(&mut self, replica: ReplicaIndex) {
        let place = self.replicas.get_mut(&replica);
        let listed = place.and_then(|place| place.listed.take());
        for adapter in listed.unwrap_or_default() {
            self.set(adapter, replica, false, |r| &mut r.listers);
        }
    }

    /// Inserts a replica into one set of an adapter, or removes it; returns whether the adapter is known afterwards.
    fn set(
        &mut self,
        adapter: AdapterKey,
        replica: ReplicaIndex,
        is_member: bool,
        set: impl Fn(&mut AdapterReplicas) -> &mut ReplicaSet,
    ) -> bool {
        if is_member && !self.known.contains_key(&adapter) && self.known.len() >= ADAPTERS_MAX {
            return false;
        }
        let known = self.known.entry(adapter).or_default();
        set(known).set(replica, is_member);
        let is_used = !known.listers.is_empty() || !known.holders.is_empty();
        if !is_used {
            self.known.remove(&adapter);
        }
        is_used
    }
}

#[cfg(test)]
mod tests;
