//! Tenants of a pool: what each has waiting and in flight.
//!
//! The table tracks a bounded number of tenants, each with an entry of its own; all others share one entry, and its bounds. A tenant with nothing
//! waiting or in flight yields its entry to a new one when the table is full. So the bounds are exact while no more tenants are active
//! at a time than the table tracks.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crate::{TenantId, TenantLimits, TenantStatus};

/// Work of a tenant, divided by its weight, since a common origin: a virtual time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Charge(u64);

/// A change of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Plus(Duration),
    Minus(Duration),
}

impl Default for Work {
    fn default() -> Self {
        Self::Plus(Duration::ZERO)
    }
}

impl Work {
    pub(crate) const fn plus(work: Duration) -> Self {
        Self::Plus(work)
    }

    /// The change from an estimate to what was measured.
    pub(crate) fn difference(measured: Duration, estimated: Duration) -> Self {
        if measured >= estimated {
            Self::Plus(measured.saturating_sub(estimated))
        } else {
            Self::Minus(estimated.saturating_sub(measured))
        }
    }

    /// Both changes together.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Plus(a), Self::Plus(b)) => Self::Plus(a.saturating_add(b)),
            (Self::Minus(a), Self::Minus(b)) => Self::Minus(a.saturating_add(b)),
            (Self::Plus(plus), Self::Minus(minus)) | (Self::Minus(minus), Self::Plus(plus)) => {
                Self::difference(plus, minus)
            }
        }
    }

    const fn negated(self) -> Self {
        match self {
            Self::Plus(work) => Self::Minus(work),
            Self::Minus(work) => Self::Plus(work),
        }
    }

    /// Microseconds, negative for less work.
    pub(crate) fn micros(self) -> i64 {
        let whole = |work: Duration| i64::try_from(work.as_micros()).unwrap_or(i64::MAX);
        match self {
            Self::Plus(work) => whole(work),
            Self::Minus(work) => -whole(work),
        }
    }

    pub(crate) const fn from_micros(micros: i64) -> Self {
        let work = Duration::from_micros(micros.unsigned_abs());
        if micros >= 0 {
            Self::Plus(work)
        } else {
            Self::Minus(work)
        }
    }
}

/// Bounds of a tenant's weight.
const WEIGHT: core::ops::RangeInclusive<f64> = 1e-3..=1e6;

impl Charge {
    pub(crate) const MAX: Self = Self(u64::MAX);

    /// The charge after a change of the tenant's work.
    fn changed(self, work: Work, weight: f64) -> Self {
        let weight = weight.clamp(*WEIGHT.start(), *WEIGHT.end());
        match work {
            Work::Plus(work) => Self(self.0.saturating_add(Self::of(work.div_f64(weight)).0)),
            Work::Minus(work) => Self(self.0.saturating_sub(Self::of(work.div_f64(weight)).0)),
        }
    }

    pub(crate) fn of(work: Duration) -> Self {
        Self(u64::try_from(work.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) const fn plus(self, more: Self) -> Self {
        Self(self.0.saturating_add(more.0))
    }

    /// Work by which this charge is larger than another one.
    pub(crate) const fn above(self, other: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(other.0))
    }
}

/// Number of a tenant's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TenantSlot(u32);

impl TenantSlot {
    /// No entry: the common tenant of a pool without bounds.
    pub(crate) const UNTRACKED: Self = Self(u32::MAX);
    /// The entry that tenants without one share.
    const SHARED: Self = Self(0);

    #[cfg(test)]
    pub(crate) const fn numbered(number: u32) -> Self {
        Self(number)
    }

    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Idle entries that are considered for a new tenant, at most.
const YIELDING_MAX: usize = 8;

/// A tenant's entry and charge, for its position among the tenants of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TenantAccount {
    pub(crate) slot: TenantSlot,
    pub(crate) charge: Charge,
}

/// One entry of the table.
#[derive(Debug, Default)]
struct TenantEntry {
    status: TenantStatus,
    /// Charge, with what siblings told, and without what idle time would have saved.
    charge: Charge,
    /// Estimated work of requests in flight, which is a part of the charge.
    estimated: Work,
    /// Corrections that the siblings have not been told.
    owed: Work,
    /// Position in the order of idle entries, while nothing waits or is in flight.
    idle_since: Option<u64>,
}

/// Entries of a pool's tenants.
#[derive(Debug)]
pub(crate) struct TenantTable {
    slots: BTreeMap<TenantId, TenantSlot>,
    /// The first one is shared.
    entries: Vec<TenantEntry>,
    /// Idle entries, the one that has been idle for longest first.
    idle: BTreeSet<(u64, TenantSlot)>,
    tick: u64,
    /// The charge at which the last request started.
    floor: Charge,
}

impl Default for TenantTable {
    fn default() -> Self {
        Self {
            slots: BTreeMap::new(),
            entries: vec![TenantEntry::default()],
            idle: BTreeSet::new(),
            tick: 0,
            floor: Charge::default(),
        }
    }
}

impl TenantTable {
    /// The entry of a tenant whose request arrives, in a pool whose rules for tenants track so many of them. The common tenant has
    /// none in a pool without such rules.
    pub(crate) fn track(&mut self, id: TenantId, tracked_max: Option<usize>) -> TenantSlot {
        if id == TenantId::default() && tracked_max.is_none() {
            return TenantSlot::UNTRACKED;
        }
        let tracked_max = tracked_max.unwrap_or(TenantLimits::TRACKED_MAX);
        let slot = self.slots.get(&id).copied();
        let slot = slot.or_else(|| self.allocate(id, tracked_max));
        let slot = slot.unwrap_or(TenantSlot::SHARED);
        self.change(slot, |_| ());
        slot
    }

    /// The entry of a tenant, if it has one of its own.
    pub(crate) fn slot_of(&self, id: TenantId) -> TenantSlot {
        let slot = self.slots.get(&id).copied();
        slot.unwrap_or(TenantSlot::UNTRACKED)
    }

    /// Whether a tenant has as many requests waiting as it may have.
    pub(crate) fn has_waiting_max(&self, slot: TenantSlot, limits: Option<&TenantLimits>) -> bool {
        let max = limits.and_then(|limits| limits.waiting_max);
        let status = self.status(slot).zip(max);
        status.is_some_and(|(status, max)| status.waiting >= max)
    }

    /// Whether a tenant has as many requests waiting and in flight as it may have in flight.
    pub(crate) fn has_in_flight_max(
        &self,
        slot: TenantSlot,
        limits: Option<&TenantLimits>,
    ) -> bool {
        let max = limits.and_then(|limits| limits.in_flight_max);
        let status = self.status(slot).zip(max);
        status.is_some_and(|(status, max)| status.waiting + status.in_flight >= max)
    }

    /// Whether a tenant has more of the pool's requests, which are so many, than its largest share and than an equal one.
    #[expect(clippy::cast_precision_loss, reason = "numbers of requests")]
    pub(crate) fn exceeds_share(
        &self,
        slot: TenantSlot,
        all: usize,
        limits: Option<&TenantLimits>,
    ) -> bool {
        let most = limits.and_then(|limits| limits.share_max);
        let Some((status, most)) = self.status(slot).zip(most) else {
            return false;
        };
        let own = status.waiting + status.in_flight;
        own.saturating_mul(self.active()) > all && own as f64 > most * all as f64
    }

    /// Number of entries of tenants with requests that wait or are in flight.
    fn active(&self) -> usize {
        let shared = self.entries.iter().take(1);
        let shared = shared.filter(|entry| entry.status.waiting + entry.status.in_flight > 0);
        self.slots.len() - self.idle.len() + shared.count()
    }

    /// Changes the figures of a tenant.
    #[inline]
    pub(crate) fn change(&mut self, slot: TenantSlot, change: impl FnOnce(&mut TenantStatus)) {
        if slot != TenantSlot::UNTRACKED {
            self.change_tracked(slot, change);
        }
    }

    #[inline(never)]
    fn change_tracked(&mut self, slot: TenantSlot, change: impl FnOnce(&mut TenantStatus)) {
        self.tick += 1;
        let Some(entry) = self.entries.get_mut(slot.index()) else {
            return;
        };
        change(&mut entry.status);
        let is_idle = entry.status.waiting == 0 && entry.status.in_flight == 0;
        let since = (is_idle && slot != TenantSlot::SHARED).then_some(self.tick);
        let before = core::mem::replace(&mut entry.idle_since, since);
        if let Some(before) = before {
            self.idle.remove(&(before, slot));
        }
        if let Some(since) = since {
            self.idle.insert((since, slot));
        }
    }

    /// Charge of a tenant.
    pub(crate) fn charge(&self, slot: TenantSlot) -> Charge {
        let entry = self.entries.get(slot.index());
        entry.map_or(Charge::default(), |entry| entry.charge)
    }

    /// Charge of a tenant without estimates.
    pub(crate) fn measured_charge(&self, slot: TenantSlot, weight: f64) -> Charge {
        let entry = self.entries.get(slot.index());
        entry.map_or(Charge::default(), |entry| {
            entry.charge.changed(entry.estimated.negated(), weight)
        })
    }

    /// Charges of all tenants.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = TenantAccount> + '_ {
        let slots = self.slots.values().copied();
        let slots = slots.chain([TenantSlot::SHARED]);
        slots.map(|slot| TenantAccount {
            slot,
            charge: self.charge(slot),
        })
    }

    /// The charge at which the last request started.
    pub(crate) const fn floor(&self) -> Charge {
        self.floor
    }

    pub(crate) fn raise_floor(&mut self, to: Charge) {
        self.floor = self.floor.max(to);
    }

    /// The tenant of an entry; `None` for the shared one.
    pub(crate) fn id_of(&self, slot: TenantSlot) -> Option<TenantId> {
        self.status(slot)?.id
    }

    /// Raises a tenant's charge.
    pub(crate) fn lift(&mut self, slot: TenantSlot, to: Charge) {
        if let Some(entry) = self.entries.get_mut(slot.index()) {
            entry.charge = entry.charge.max(to);
        }
    }

    /// Charges work of this service.
    pub(crate) fn charge_work(&mut self, slot: TenantSlot, work: Work, weight: f64) {
        self.charge_of_sibling(slot, work, weight);
        if let Some(entry) = self.entries.get_mut(slot.index()) {
            let so_far = entry.status.work;
            entry.status.work = match work {
                Work::Plus(work) => so_far.saturating_add(work),
                Work::Minus(work) => so_far.saturating_sub(work),
            };
        }
    }

    /// Charges work of a sibling.
    pub(crate) fn charge_of_sibling(&mut self, slot: TenantSlot, work: Work, weight: f64) {
        if let Some(entry) = self.entries.get_mut(slot.index()) {
            entry.charge = entry.charge.changed(work, weight);
        }
    }

    /// Registers estimated work of a request that is dispatched, or that it has been measured.
    pub(crate) fn estimate(&mut self, slot: TenantSlot, change: Work) {
        if let Some(entry) = self.entries.get_mut(slot.index()) {
            entry.estimated = entry.estimated.and(change);
        }
    }

    /// Registers a correction for the siblings.
    pub(crate) fn owe(&mut self, slot: TenantSlot, work: Work) {
        if let Some(entry) = self.entries.get_mut(slot.index()) {
            entry.owed = entry.owed.and(work);
        }
    }

    /// Takes the corrections that the siblings have not been told.
    pub(crate) fn take_owed(&mut self, slot: TenantSlot) -> Work {
        let entry = self.entries.get_mut(slot.index());
        entry
            .map(|entry| core::mem::take(&mut entry.owed))
            .unwrap_or_default()
    }

    /// Figures of every tenant with an entry, and of all others.
    pub(crate) fn all(&self) -> impl Iterator<Item = &TenantStatus> {
        let others = self.entries.iter().take(1);
        let others = others.filter(|entry| entry.status.requests > 0);
        let tracked = self.entries.iter().skip(1);
        tracked.chain(others).map(|entry| &entry.status)
    }

    fn status(&self, slot: TenantSlot) -> Option<&TenantStatus> {
        self.entries.get(slot.index()).map(|entry| &entry.status)
    }

    /// The idle entry that yields: of a tenant that gets no lower charge by it.
    fn least_needed(&mut self) -> Option<TenantSlot> {
        let floor = self.floor;
        let is_lifted = |slot: TenantSlot| self.charge(slot) <= floor;
        let mut first = self.idle.iter().take(YIELDING_MAX).copied();
        let idle = first.find(|(_, slot)| is_lifted(*slot))?;
        self.idle.remove(&idle);
        Some(idle.1)
    }

    /// A new entry, or that of the tenant that has been idle for longest. Its counts go to the shared entry.
    fn allocate(&mut self, id: TenantId, tracked_max: usize) -> Option<TenantSlot> {
        let status = TenantStatus {
            id: Some(id),
            ..TenantStatus::default()
        };
        let entry = TenantEntry {
            status,
            ..TenantEntry::default()
        };
        let slot = if self.entries.len() <= tracked_max {
            let slot = TenantSlot(u32::try_from(self.entries.len()).ok()?);
            self.entries.push(entry);
            slot
        } else {
            let slot = self.least_needed()?;
            let old = core::mem::replace(self.entries.get_mut(slot.index())?, entry);
            self.slots.remove(&old.status.id?);
            self.entries.first_mut()?.status.add(&old.status);
            slot
        };
        self.slots.insert(id, slot);
        Some(slot)
    }
}

impl TenantStatus {
    /// Adds the counts of another tenant.
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.refused += other.refused;
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
        self.work += other.work;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: TenantLimits = TenantLimits {
        waiting_max: Some(2),
        in_flight_max: Some(3),
        share_max: Some(0.4),
        tracked_max: 2,
    };
    const TRACKED_MAX: Option<usize> = Some(2);

    fn counts(table: &TenantTable) -> Vec<(Option<u64>, usize, u64)> {
        let all = table.all();
        all.map(|s| (s.id.map(|id| id.0), s.waiting, s.requests))
            .collect()
    }

    #[test]
    fn the_common_tenant_has_an_entry_only_where_there_are_limits() {
        let mut table = TenantTable::default();
        let common = TenantId::default();
        assert_eq!(table.track(common, None), TenantSlot::UNTRACKED);
        assert_ne!(table.track(common, TRACKED_MAX), TenantSlot::UNTRACKED);
        assert_ne!(table.track(TenantId(7), None), TenantSlot::UNTRACKED);
    }

    #[test]
    fn an_idle_tenant_yields_its_entry_and_an_active_one_does_not() {
        let mut table = TenantTable::default();
        let arrive = |table: &mut TenantTable, id, waiting| {
            let slot = table.track(TenantId(id), TRACKED_MAX);
            table.change(slot, |status| {
                status.requests += 1;
                status.waiting += waiting;
            });
            slot
        };
        arrive(&mut table, 1, 0);
        let second = arrive(&mut table, 2, 1);
        arrive(&mut table, 3, 1);
        let expected = [(Some(3), 1, 1), (Some(2), 1, 1), (None, 0, 1)];
        assert_eq!(counts(&table), expected, "1 was idle");
        let shared = arrive(&mut table, 4, 1);
        assert_eq!(counts(&table)[2], (None, 1, 2), "both are active");
        table.change(shared, |status| status.waiting -= 1);
        table.change(second, |status| status.waiting -= 1);
        arrive(&mut table, 4, 1);
        assert_eq!(counts(&table)[1], (Some(4), 1, 1));
        assert!(table.slots.len() <= 2 && table.entries.len() <= 3);
    }

    #[test]
    fn a_bound_counts_what_waits_and_what_is_in_flight() {
        let mut table = TenantTable::default();
        let slot = table.track(TenantId(1), TRACKED_MAX);
        table.change(slot, |status| (status.waiting, status.in_flight) = (1, 1));
        assert!(!table.has_waiting_max(slot, Some(&LIMITS)));
        assert!(!table.has_in_flight_max(slot, Some(&LIMITS)));
        table.change(slot, |status| status.waiting = 2);
        assert!(table.has_waiting_max(slot, Some(&LIMITS)));
        assert!(table.has_in_flight_max(slot, Some(&LIMITS)));
        assert!(!table.has_waiting_max(slot, None), "without bounds");
    }

    #[test]
    fn a_tenant_may_have_an_equal_share_and_the_largest_one() {
        let mut table = TenantTable::default();
        let [a, b, c] = [1, 2, 3].map(|id| table.track(TenantId(id), Some(10)));
        let mut have = |slot, waiting, in_flight| {
            table.change(slot, |status| {
                (status.waiting, status.in_flight) = (waiting, in_flight);
            });
            let all = table.all().map(|s| s.waiting + s.in_flight).sum();
            table.exceeds_share(slot, all, Some(&LIMITS))
        };
        assert!(!have(a, 9, 9), "no other tenant has requests");
        assert!(!have(b, 0, 1));
        assert!(have(a, 1, 1), "an equal share is a half");
        assert!(!have(a, 1, 0));
        assert!(!have(c, 0, 1));
        assert!(have(a, 2, 0), "0.5 of all");
        have(c, 3, 0);
        assert!(!have(a, 2, 0), "a third of all");
        assert!(!table.exceeds_share(a, 2, None), "without bounds");
    }
}
