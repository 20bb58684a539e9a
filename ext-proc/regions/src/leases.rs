//! Ownership of replicas by leases in a store.
//!
//! Each region has one [`RegionEntry`] in the store, and each change of it is a compare-and-swap. [`Leases`] lists the records once
//! in a tenth of the lease, renews what this region holds, takes the lease of a region that is gone, and gives it back. A
//! driver carries out [`LeaseEffect`]s and reports their results with the time *before* they were sent. After each step, and
//! before it sends anything, the driver uses exactly the replicas that [`Leases::owned`] and [`Leases::is_suspended`] name.
//!
//! Rules (`docs/design/recovery.md`):
//!
//! - A holder counts a lease from the moment before it sent the renewal, less a fifth: the margin. An observer counts the whole
//!   lease from the moment after it saw a renewal. Clocks may differ in speed by a tenth.
//! - The owner takes its lapsed lease at once. Another region waits longer the farther away it is, has a gateway, and has not
//!   heard the owner for half a lease. After an outage of the store it waits anew: no region could renew meanwhile.
//! - The owner gets its lease back when it has been well for a while. Until then the holder decides about its replicas.
//! - Without an answer of the store, a region keeps its own replicas and drops those of others when their lease ends.
//!
//! `docs/decisions/0150-leases.md` says what was rejected.

mod decide;
mod status;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::entry::{PoolReplicas, RegionEntry, StoreVersion, StoredEntry};
use super::message::RegionName;
use isotherm_router::Time;
pub use status::{EntryStatus, LeaseCounters};

/// The lease divided by the margin: a fifth outweighs two clocks, each a tenth wrong.
const MARGIN_DIVISOR: u32 = 5;
/// The lease divided by the time between two lists, and by the longest wait for the store.
const LIST_DIVISOR: u32 = 10;
/// The lease divided by the time between two renewals.
const RENEWAL_DIVISOR: u32 = 4;
/// The lease divided by the shortest silence that counts as an outage. A holder renews in time after a shorter silence of the store,
/// and heartbeats of a busy region may be late by less.
const OUTAGE_DIVISOR: u32 = 2;
/// Limit of records.
const ENTRIES_MAX: usize = 1_024;

/// Configuration of the leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// Name of this region.
    pub name: RegionName,
    /// Duration of a lease, the same in all regions.
    pub lease: Duration,
    /// Time that an owner must be well before it gets its lease back.
    pub give_back_after: Duration,
}

impl LeaseConfig {
    /// Time before the end of a lease at which its holder stops.
    pub fn margin(&self) -> Duration {
        self.lease / MARGIN_DIVISOR
    }

    /// Time between two lists, and the longest wait for an answer of the store.
    pub fn list_interval(&self) -> Duration {
        self.lease / LIST_DIVISOR
    }

    /// Shortest silence of the store, or of a region, that counts as an outage.
    pub fn outage(&self) -> Duration {
        self.lease / OUTAGE_DIVISOR
    }
}

/// State of this region and of the others, as the driver knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseInputs {
    /// Address for the services of other regions.
    pub address: Arc<str>,
    /// This region's own replicas; `None` until they are known.
    pub pools: Option<Vec<PoolReplicas>>,
    /// Whether the region's gateway is connected.
    pub has_gateway: bool,
    /// Regions that are heard with a gateway, nearest first.
    pub heard: Vec<RegionName>,
    /// Regions of whose replicas this service may use none.
    pub refused: BTreeSet<RegionName>,
}

/// Result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// The record has the new content and this version.
    Written(StoreVersion),
    /// The record has another version than the expected one.
    Conflict,
    /// The store did not answer; the write may have happened.
    Unknown,
}

/// Work for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseEffect {
    /// List all records.
    List,
    /// Write a record if it still has this version; `None` if there is none.
    Write(RegionEntry, Option<StoreVersion>),
}

/// State of one service.
#[derive(Debug)]
pub struct Leases {
    config: LeaseConfig,
    inputs: LeaseInputs,
    now: Time,
    next_list: Time,
    is_listing: bool,
    /// Time before the last list was sent that was answered.
    listed: Option<Time>,
    /// Time of the first answer after the last outage of the store.
    answers_since: Time,
    entries: BTreeMap<RegionName, KnownEntry>,
    is_stopping: bool,
    effects: VecDeque<LeaseEffect>,
    counters: LeaseCounters,
}

/// A record as this service knows it.
#[derive(Debug, Default)]
struct KnownEntry {
    entry: RegionEntry,
    version: Option<StoreVersion>,
    /// Time after this service first saw the last renewal.
    renewed_seen: Time,
    /// Time after this service first saw the owner's last beat ([`RegionEntry::beats`]).
    beat_seen: Option<Time>,
    /// Time at which this service last heard the region with a gateway.
    last_heard: Option<Time>,
    /// Time since which beats come without a gap.
    well_since: Option<Time>,
    /// Time before the last renewal of this service was sent, and the number of its revision; `None` after this service gave the
    /// lease up.
    renewed: Option<(Time, u64)>,
    /// The write that is on its way.
    pending: Option<RegionEntry>,
    /// Whether a write has failed, so that the next one waits for a list.
    is_outdated: bool,
    /// Time of the last write that succeeded. An answer to an older list may be out of date.
    written: Time,
    /// Time at which this service last sent a beat.
    beat_sent: Option<Time>,
}

impl Leases {
    /// Creates the state of a service that starts.
    #[must_use]
    pub fn new(config: LeaseConfig, now: Time) -> Self {
        Self {
            config,
            inputs: LeaseInputs::default(),
            now,
            next_list: now,
            is_listing: false,
            listed: None,
            answers_since: now,
            entries: BTreeMap::new(),
            is_stopping: false,
            effects: VecDeque::new(),
            counters: LeaseCounters::default(),
        }
    }

    /// Returns the inputs, to change them. They count from the next step on.
    pub fn inputs_mut(&mut self) -> &mut LeaseInputs {
        &mut self.inputs
    }

    /// Handles the answer to [`LeaseEffect::List`], which was sent at `sent`; `None` when the store did not answer.
    pub fn on_listed(&mut self, now: Time, sent: Time, found: Option<Vec<StoredEntry>>) {
        self.advance(now);
        self.is_listing = false;
        match found {
            Some(found) => {
                let age = self.store_age(self.now);
                if age.is_none_or(|age| age >= self.config.outage()) {
                    self.answers_since = self.now;
                }
                self.listed = Some(sent);
                self.apply(sent, found);
            }
            None => self.counters.lease_store_failures += 1,
        }
        self.step();
    }

    /// Handles the result of [`LeaseEffect::Write`], which was sent at `sent`.
    pub fn on_written(&mut self, now: Time, region: &RegionName, sent: Time, result: WriteResult) {
        self.advance(now);
        let Some(known) = self.entries.get_mut(region) else {
            return;
        };
        let Some(entry) = known.pending.take() else {
            return;
        };
        match result {
            WriteResult::Written(version) => {
                known.written = self.now;
                let is_held = entry.is_held_by(&self.config.name);
                if is_held && known.entry.holder != entry.holder && *region != self.config.name {
                    self.counters.leases_taken += 1;
                    // Beats of an earlier lease do not show that the owner is well now.
                    (known.beat_seen, known.well_since) = (None, None);
                }
                known.renewed = is_held.then_some((sent, entry.revision));
                known.observe(entry, Some(version), self.now);
            }
            WriteResult::Conflict => {
                self.counters.lease_conflicts += 1;
                known.is_outdated = true;
                // Two regions whose writes are in step would else collide again and again.
                known.beat_sent = None;
                self.next_list = self.now;
            }
            WriteResult::Unknown => {
                self.counters.lease_store_failures += 1;
                known.is_outdated = true;
            }
        }
        self.step();
    }

    /// Gives every lease up.
    pub fn shut_down(&mut self, now: Time) {
        self.is_stopping = true;
        self.handle_timeout(now);
    }

    /// Handles the time that [`Self::poll_timeout`] named. An early call does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        self.advance(now);
        self.step();
    }

    /// Returns the time of the next [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Time {
        let owned = self.entries.values().filter(|known| self.owns(known));
        let expiries = owned.filter_map(|known| self.valid_until(known));
        let next_list = if self.is_listing {
            self.now.after(self.config.list_interval())
        } else {
            self.next_list
        };
        expiries.fold(next_list, Time::min)
    }

    /// Takes the oldest effect. Call until there is none.
    pub fn poll_effect(&mut self) -> Option<LeaseEffect> {
        self.effects.pop_front()
    }

    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    /// Decides anew about every record.
    fn step(&mut self) {
        if !self.is_listing && self.now >= self.next_list {
            self.is_listing = true;
            self.next_list = self.now.after(self.config.list_interval());
            self.effects.push_back(LeaseEffect::List);
        }
        self.add_own_entry();
        for heard in &self.inputs.heard {
            if let Some(known) = self.entries.get_mut(heard) {
                known.last_heard = Some(self.now);
            }
        }
        for region in self.entries.keys().cloned().collect::<Vec<_>>() {
            self.decide(&region);
        }
    }

    /// Applies the records of a list, except records that this service has written since the list was sent.
    fn apply(&mut self, sent: Time, found: Vec<StoredEntry>) {
        let now = self.now;
        let found = found.into_iter().take(ENTRIES_MAX);
        let mut listed = BTreeSet::new();
        for StoredEntry { entry, version } in found.filter(|found| found.entry.is_within_limits()) {
            listed.insert(entry.region.clone());
            let known = self.entries.entry(entry.region.clone());
            let known = known.or_insert_with(|| KnownEntry::new(entry.clone(), now));
            if sent >= known.written {
                known.observe(entry, Some(version), now);
            }
        }
        self.entries.retain(|region, known| {
            listed.contains(region) || known.pending.is_some() || sent < known.written
        });
    }

    /// Whether this service decides about the replicas of a record of another region: it holds the lease, and has renewed it.
    fn owns(&self, known: &KnownEntry) -> bool {
        let name = &self.config.name;
        let valid_until = self.valid_until(known);
        known.entry.region != *name
            && known.entry.is_held_by(name)
            && valid_until.is_some_and(|until| self.now < until)
    }

    /// End of the lease by the renewals of this service.
    fn valid_until(&self, known: &KnownEntry) -> Option<Time> {
        let (renewed, revision) = known.renewed?;
        let usable = self.config.lease - self.config.margin();
        (revision == known.entry.revision).then(|| renewed.after(usable))
    }
}

impl KnownEntry {
    fn new(entry: RegionEntry, now: Time) -> Self {
        Self {
            entry,
            renewed_seen: now,
            ..Self::default()
        }
    }

    /// Replaces the record, and notes the time of a renewal and of a beat.
    fn observe(&mut self, entry: RegionEntry, version: Option<StoreVersion>, now: Time) {
        let lease = |entry: &RegionEntry| (entry.holder.clone(), entry.revision, entry.renewals);
        if lease(&entry) != lease(&self.entry) {
            self.renewed_seen = now;
        }
        if entry.beats != self.entry.beats {
            self.beat_seen = Some(now);
            self.well_since = self.well_since.or(Some(now));
        }
        self.entry = entry;
        self.version = version;
        self.is_outdated = false;
    }

    /// Whether the owner has sent a beat within `lease`.
    fn is_beating(&self, lease: Duration, now: Time) -> bool {
        self.beat_seen.is_some_and(|seen| now.since(seen) < lease)
    }
}
