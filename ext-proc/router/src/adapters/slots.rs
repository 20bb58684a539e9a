//! The slots of one replica: a belief about the adapters that it holds, in order of use.
//!
//! Engines load an adapter when they start a request for it, and evict the least recently used one that no running request
//! uses. While each slot has a running request, a request for another adapter waits. The belief follows the same rule on
//! dispatched and ended requests. A report is compared with it: an adapter that runs is loaded, an adapter that waits is
//! not, and more adapters than slots cannot be loaded. A report says nothing about a request that was dispatched after it
//! was asked for.

use core::time::Duration;

use super::AdapterState;
use crate::{AdapterKey, AdapterReport, Time};

/// The most slots that are followed.
const SLOTS_MAX: usize = 256;
/// The most adapters that wait for a slot.
const WAITING_MAX: usize = 64;

/// Whether an adapter has a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    Loaded,
    Waiting,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    adapter: AdapterKey,
    state: SlotState,
    /// Requests that were dispatched and have not ended.
    in_flight: u32,
    /// Whether the last report names it among the running ones.
    is_running: bool,
    /// Time of the last dispatch.
    dispatched: Option<Time>,
}

impl Entry {
    const fn is_in_use(&self) -> bool {
        self.in_flight > 0 || self.is_running
    }

    fn is_loaded(&self) -> bool {
        self.state == SlotState::Loaded
    }
}

/// The slots of a replica.
#[derive(Debug, Default)]
pub(super) struct AdapterSlots {
    /// Number of slots while the replica reports none.
    presumed: u32,
    /// Number of slots, as reported.
    reported: Option<u32>,
    /// Least recently used first.
    entries: Vec<Entry>,
    /// When the last load ends.
    loading_until: Time,
}

impl AdapterSlots {
    pub(super) fn new(presumed: u32) -> Self {
        Self {
            presumed,
            ..Self::default()
        }
    }

    /// Replaces the number of slots that holds while the replica reports none.
    pub(super) const fn presume(&mut self, slots: u32) {
        self.presumed = slots;
    }

    pub(super) fn count(&self) -> usize {
        let slots = self.reported.unwrap_or(self.presumed) as usize;
        slots.clamp(1, SLOTS_MAX)
    }

    pub(super) const fn reported(&self) -> Option<u32> {
        self.reported
    }

    /// Number of adapters that wait for a slot.
    pub(super) fn waiting(&self) -> usize {
        self.of_state(SlotState::Waiting).count()
    }

    /// Number of other adapters that wait for a slot.
    pub(super) fn waiting_beside(&self, adapter: AdapterKey) -> usize {
        let waiting = self.of_state(SlotState::Waiting);
        waiting.filter(|other| *other != adapter).count()
    }

    pub(super) fn of_state(&self, state: SlotState) -> impl Iterator<Item = AdapterKey> + '_ {
        let entries = self.entries.iter();
        entries
            .filter(move |entry| entry.state == state)
            .map(|entry| entry.adapter)
    }

    /// Time until the last load has ended, in seconds.
    pub(super) fn loading_s(&self, now: Time) -> f64 {
        self.loading_until.since(now).as_secs_f64()
    }

    pub(super) fn state(&self, adapter: AdapterKey) -> AdapterState {
        let known = self.entries.iter().find(|entry| entry.adapter == adapter);
        match known.map(|entry| entry.state) {
            Some(SlotState::Loaded) => AdapterState::Loaded,
            Some(SlotState::Waiting) => AdapterState::Waiting,
            None if self.loaded() < self.count() => AdapterState::FreeSlot,
            None if self.idle().is_some() => AdapterState::Evicts,
            None => AdapterState::Full,
        }
    }

    /// Registers a request for a loaded adapter.
    pub(super) fn use_loaded(&mut self, adapter: AdapterKey, now: Time) {
        let known = self.entries.iter().position(|e| e.adapter == adapter);
        if let Some(at) = known {
            self.use_at(at, now);
        }
    }

    /// Registers a request for an adapter.
    pub(super) fn on_dispatch(&mut self, adapter: AdapterKey, load: Duration, now: Time) {
        let known = self.entries.iter().position(|e| e.adapter == adapter);
        if let Some(at) = known {
            self.use_at(at, now);
        } else if self.waiting() < WAITING_MAX {
            self.entries.push(Entry {
                adapter,
                state: SlotState::Waiting,
                in_flight: 1,
                is_running: false,
                dispatched: Some(now),
            });
        }
        self.settle(load, now);
    }

    /// Registers the end of a request; returns whether an adapter that waits may take the slot.
    pub(super) fn on_release(&mut self, adapter: AdapterKey) -> bool {
        let known = self.entries.iter_mut().find(|e| e.adapter == adapter);
        let Some(entry) = known else {
            return false;
        };
        entry.in_flight = entry.in_flight.saturating_sub(1);
        !entry.is_in_use() && self.waiting() > 0
    }

    /// Gives the adapters that wait the slots that no running request uses, in order.
    pub(super) fn settle(&mut self, load: Duration, now: Time) {
        while let Some(waiting) = self.entries.iter().position(|e| !e.is_loaded()) {
            let mut at = waiting;
            if self.loaded() >= self.count() {
                let Some(idle) = self.idle() else {
                    return;
                };
                self.entries.remove(idle);
                at -= usize::from(idle < waiting);
            }
            if let Some(entry) = self.entries.get_mut(at) {
                entry.state = SlotState::Loaded;
            }
            self.loading_until = self.loading_until.max(now).after(load);
        }
    }

    /// Corrects the belief by a report that was asked for at `sent`.
    pub(super) fn report(&mut self, report: &AdapterReport, sent: Time, load: Duration, now: Time) {
        self.reported = report.slots.or(self.reported);
        // A request may wait for memory, too. It waits for a slot only while each slot has a running request.
        let queued = if report.running.len() < self.count() {
            SlotState::Loaded
        } else {
            SlotState::Waiting
        };
        let is_newer = |entry: &Entry| entry.dispatched.is_some_and(|at| at >= sent);
        for entry in &mut self.entries {
            entry.is_running = report.running.contains(&entry.adapter);
            if entry.is_running {
                entry.state = SlotState::Loaded;
            } else if report.waiting.contains(&entry.adapter) && !is_newer(entry) {
                entry.state = queued;
            }
        }
        // A request that waited and is named no more has ended.
        self.entries.retain(|entry| {
            entry.is_loaded() || is_newer(entry) || report.waiting.contains(&entry.adapter)
        });
        self.add_reported(report, queued);
        // Running adapters are the most recently used ones. The sort is stable.
        self.entries.sort_by_key(|entry| entry.is_running);
        while self.loaded() > self.count() {
            let unused = |entry: &Entry| entry.is_loaded() && !entry.is_running;
            let least_recent = self.idle().or_else(|| self.entries.iter().position(unused));
            let Some(at) = least_recent else {
                break;
            };
            match self.entries.get_mut(at) {
                Some(entry) if is_newer(entry) && entry.in_flight > 0 => {
                    entry.state = SlotState::Waiting;
                }
                _ => drop(self.entries.remove(at)),
            }
        }
        self.settle(load, now);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(self.presumed);
    }

    /// Keeps the loaded adapters that fulfil a condition, and all that wait.
    pub(super) fn retain_loaded(&mut self, mut keeps: impl FnMut(AdapterKey) -> bool) {
        self.entries
            .retain(|entry| !entry.is_loaded() || keeps(entry.adapter));
    }

    fn add_reported(&mut self, report: &AdapterReport, queued: SlotState) {
        let running = report.running.iter().take(SLOTS_MAX);
        let running = running.map(|adapter| (*adapter, SlotState::Loaded, true));
        let waiting = report.waiting.iter().take(WAITING_MAX);
        let waiting = waiting.map(|adapter| (*adapter, queued, false));
        for (adapter, state, is_running) in running.chain(waiting) {
            if self.entries.iter().all(|entry| entry.adapter != adapter) {
                self.entries.push(Entry {
                    adapter,
                    state,
                    in_flight: 0,
                    is_running,
                    dispatched: None,
                });
            }
        }
    }

    fn loaded(&self) -> usize {
        self.of_state(SlotState::Loaded).count()
    }

    /// The least recently used adapter without a request.
    fn idle(&self) -> Option<usize> {
        let is_idle = |entry: &Entry| entry.is_loaded() && !entry.is_in_use();
        self.entries.iter().position(is_idle)
    }

    fn use_at(&mut self, at: usize, now: Time) {
        let mut entry = self.entries.remove(at);
        entry.in_flight = entry.in_flight.saturating_add(1);
        entry.dispatched = Some(now);
        self.entries.push(entry);
    }
}
