//! Decisions about one record: renew it, take its lease, give the lease back, or send a beat.

use core::time::Duration;

use super::{KnownEntry, LeaseEffect, Leases, RENEWAL_DIVISOR};
use crate::entry::RegionEntry;
use crate::message::RegionName;

/// Lists by which a region waits longer than the next nearer one. It may have seen the last renewal one list earlier.
const LISTS_PER_RANK: u32 = 2;

impl Leases {
    /// Creates this region's own record, once its replicas are known.
    pub(super) fn add_own_entry(&mut self) {
        let name = self.config.name.clone();
        if self.listed.is_none() || self.entries.contains_key(&name) {
            return;
        }
        let entry = RegionEntry {
            region: name.clone(),
            address: self.inputs.address.clone(),
            ..RegionEntry::default()
        };
        self.entries.insert(name, KnownEntry::new(entry, self.now));
    }

    /// Decides about a record, unless a write of it is on its way.
    pub(super) fn decide(&mut self, region: &RegionName) {
        let is_own = *region == self.config.name;
        let Some(known) = self.entries.get(region) else {
            return;
        };
        if known.pending.is_some() || known.is_outdated {
            return;
        }
        let holds = known.entry.is_held_by(&self.config.name);
        let next = match (is_own, holds) {
            (true, true) => self.keep_own(known),
            (true, false) => self.recover_own(known),
            (false, true) => self.keep_other(region),
            (false, false) => self.take_other(known),
        };
        if let Some(entry) = next {
            self.write(region, entry);
        }
    }

    fn keep_own(&self, known: &KnownEntry) -> Option<RegionEntry> {
        if self.is_stopping || !self.inputs.has_gateway {
            return Some(with_holder(&known.entry, None));
        }
        let next = self.with_own_content(&known.entry);
        // Measured round trips change all the time: a new order waits for the next renewal.
        let nearest = known.entry.nearest.clone();
        let same_order = RegionEntry {
            nearest,
            ..next.clone()
        };
        (same_order != known.entry || self.is_renewal_due(known)).then(|| renewed(next))
    }

    /// Takes this region's own lease when no region holds it, and sends beats to its holder otherwise.
    fn recover_own(&self, known: &KnownEntry) -> Option<RegionEntry> {
        if self.is_stopping || !self.inputs.has_gateway || self.inputs.pools.is_none() {
            return None;
        }
        let next = self.with_own_content(&known.entry);
        if !self.is_alive(known) {
            return Some(with_holder(&next, Some(&self.config.name)));
        }
        let pause = self.config.lease / RENEWAL_DIVISOR;
        let is_due = known
            .beat_sent
            .is_none_or(|sent| self.now.since(sent) >= pause);
        is_due.then(|| RegionEntry {
            beats: next.beats.wrapping_add(1),
            ..next
        })
    }

    fn keep_other(&mut self, region: &RegionName) -> Option<RegionEntry> {
        let known = self.entries.get_mut(region)?;
        let is_beating = known.is_beating(self.config.lease, self.now);
        if !is_beating {
            known.well_since = None;
        }
        let is_well = known
            .well_since
            .is_some_and(|since| self.now.since(since) >= self.config.give_back_after);
        if !is_well && !self.is_stopping && self.inputs.has_gateway {
            let known = self.entries.get(region)?;
            let is_due = self.is_renewal_due(known);
            return is_due.then(|| renewed(known.entry.clone()));
        }
        known.renewed = None;
        if is_well {
            self.counters.leases_given_back += 1;
        }
        Some(with_holder(&known.entry, is_beating.then_some(region)))
    }

    fn take_other(&self, known: &KnownEntry) -> Option<RegionEntry> {
        let entry = &known.entry;
        let is_heard = self.inputs.heard.contains(&entry.region);
        let is_refused = self.inputs.refused.contains(&entry.region);
        let can_take = !self.is_stopping && self.inputs.has_gateway && !is_refused;
        if !can_take || is_heard || entry.replicas() == 0 {
            return None;
        }
        let nearer = entry
            .nearest
            .iter()
            .take_while(|near| **near != self.config.name);
        let nearer = u32::try_from(nearer.count()).unwrap_or(u32::MAX);
        let lists = nearer.saturating_mul(LISTS_PER_RANK).saturating_add(1);
        let wait = self.config.list_interval().saturating_mul(lists);
        let lease = entry
            .holder
            .as_ref()
            .map_or(Duration::ZERO, |_| self.config.lease);
        let silent_since = known.renewed_seen.max(self.answers_since);
        let is_due = self.now.since(silent_since) >= lease.saturating_add(wait);
        // A region that was heard a moment ago lost the store, and lives. One that gave its lease up wants it taken.
        let was_heard = known
            .last_heard
            .is_some_and(|heard| self.now.since(heard) < self.config.outage());
        if was_heard && entry.holder.is_some() {
            return None;
        }
        is_due.then(|| with_holder(entry, Some(&self.config.name)))
    }

    /// Sends the record, and remembers it until the store answers.
    fn write(&mut self, region: &RegionName, entry: RegionEntry) {
        let Some(known) = self.entries.get_mut(region) else {
            return;
        };
        if entry.beats != known.entry.beats {
            known.beat_sent = Some(self.now);
        }
        known.pending = Some(entry.clone());
        let effect = LeaseEffect::Write(entry, known.version.clone());
        self.effects.push_back(effect);
    }

    /// Whether a region holds the lease, as far as this service can see.
    pub(super) fn is_alive(&self, known: &KnownEntry) -> bool {
        known.entry.holder.is_some() && self.now.since(known.renewed_seen) < self.config.lease
    }

    fn is_renewal_due(&self, known: &KnownEntry) -> bool {
        let pause = self.config.lease / RENEWAL_DIVISOR;
        known.renewed.is_none_or(|(sent, revision)| {
            revision != known.entry.revision || self.now.since(sent) >= pause
        })
    }

    /// The record with the present address, replicas and nearest regions of this region.
    fn with_own_content(&self, entry: &RegionEntry) -> RegionEntry {
        let inputs = &self.inputs;
        let heard = &inputs.heard;
        let is_silent = |name: &&RegionName| !heard.contains(name);
        let silent = entry.nearest.iter().filter(is_silent);
        let nearest = heard.iter().chain(silent).take(super::ENTRIES_MAX);
        RegionEntry {
            address: inputs.address.clone(),
            pools: inputs.pools.clone().unwrap_or_else(|| entry.pools.clone()),
            nearest: nearest.cloned().collect(),
            ..entry.clone()
        }
    }
}

fn renewed(entry: RegionEntry) -> RegionEntry {
    RegionEntry {
        renewals: entry.renewals.wrapping_add(1),
        ..entry
    }
}

/// The record with another holder, and the next revision.
fn with_holder(entry: &RegionEntry, holder: Option<&RegionName>) -> RegionEntry {
    RegionEntry {
        holder: holder.cloned(),
        revision: entry.revision.wrapping_add(1),
        ..renewed(entry.clone())
    }
}
