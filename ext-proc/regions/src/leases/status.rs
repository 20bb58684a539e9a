//! Status of the leases, for operators and metrics.

use core::time::Duration;

use super::Leases;
use crate::entry::RegionEntry;
use crate::message::RegionName;
use isotherm_router::Time;

/// Status of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryStatus<'a> {
    /// The record.
    pub entry: &'a RegionEntry,
    /// Region that holds its lease while the lease is alive.
    pub holder: Option<&'a RegionName>,
    /// Whether the region is a member: its lease is alive, the region is well without it, or this region holds the lease.
    pub is_member: bool,
}

/// Counters since the start, by the names of their metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseCounters {
    /// Leases of other regions taken.
    pub leases_taken: u64,
    /// Leases given back to an owner that is well.
    pub leases_given_back: u64,
    /// Writes that failed because the record had changed.
    pub lease_conflicts: u64,
    /// Lists and writes without an answer.
    pub lease_store_failures: u64,
}

impl Leases {
    /// Returns the status of every record.
    pub fn entries(&self) -> impl Iterator<Item = EntryStatus<'_>> {
        self.entries.values().map(|known| {
            let entry = &known.entry;
            let is_alive = self.is_alive(known);
            let is_own_holder = entry.is_held_by(&entry.region);
            let is_beating = known.is_beating(self.config.lease, self.now);
            EntryStatus {
                entry,
                holder: entry.holder.as_ref().filter(|_| is_alive),
                is_member: (is_alive && is_own_holder) || is_beating || self.owns(known),
            }
        })
    }

    /// Returns the regions whose replicas this service decides about besides its own.
    pub fn owned(&self) -> impl Iterator<Item = &RegionEntry> {
        let owned = self.entries.values().filter(|known| self.owns(known));
        owned.map(|known| &known.entry)
    }

    /// Whether this region leaves its own replicas to another region, which holds a live lease.
    pub fn is_suspended(&self) -> bool {
        let own = self.entries.get(&self.config.name);
        own.is_some_and(|known| !known.entry.is_held_by(&self.config.name) && self.is_alive(known))
    }

    /// Time since the last list that the store has answered.
    pub fn store_age(&self, now: Time) -> Option<Duration> {
        self.listed.map(|listed| now.since(listed))
    }

    /// Counters since the start.
    pub const fn counters(&self) -> LeaseCounters {
        self.counters
    }
}
