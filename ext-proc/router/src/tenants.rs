//! Tenants of a pool: what each has waiting and in flight, in requests and in tokens.
//!
//! The table tracks a bounded number of tenants, each with an entry of its own; all others share one entry, and its bounds. A tenant with nothing
//! waiting or in flight yields its entry to a new one when the table is full. So the bounds are exact while no more tenants are active
//! at a time than the table tracks.

use std::collections::{BTreeMap, BTreeSet};

use crate::{TenantId, TenantLimits, TenantStatus};

/// Number of a tenant's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TenantSlot(u32);

impl TenantSlot {
    /// No entry: the common tenant of a pool without bounds.
    pub(crate) const UNTRACKED: Self = Self(u32::MAX);
    /// The entry that tenants without one share.
    const SHARED: Self = Self(0);

    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Tokens that count for a tenant while its request waits or is in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TenantCharge {
    pub(crate) slot: TenantSlot,
    /// Tokens of the prompt and of the expected answer.
    pub(crate) tokens: u64,
}

/// Weight of a tenant in thousandths. Sums of integers are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Weight(u64);

impl Weight {
    const ONE: Self = Self(1_000);
    /// Bounds of a weight.
    const RANGE: core::ops::RangeInclusive<f64> = 1e-3..=1e6;

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number within its bounds"
    )]
    fn of(id: TenantId, limits: Option<&TenantLimits>) -> Self {
        let named = limits.and_then(|limits| limits.weights.get(&id));
        named.map_or(Self::ONE, |weight| {
            let weight = weight.clamp(*Self::RANGE.start(), *Self::RANGE.end());
            Self((weight * 1_000.0).round() as u64)
        })
    }
}

/// One entry of the table.
#[derive(Debug)]
struct TenantEntry {
    status: TenantStatus,
    weight: Weight,
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
    /// Sum of the weights of the tenants with requests.
    active: u64,
    /// Requests of all tenants, waiting and in flight, with those of tenants without an entry.
    requests: usize,
    /// Tokens of these requests.
    tokens: u64,
}

impl Default for TenantTable {
    fn default() -> Self {
        Self {
            slots: BTreeMap::new(),
            entries: vec![TenantEntry::new(None, Weight::ONE)],
            idle: BTreeSet::new(),
            tick: 0,
            active: 0,
            requests: 0,
            tokens: 0,
        }
    }
}

impl TenantEntry {
    fn new(id: Option<TenantId>, weight: Weight) -> Self {
        let status = TenantStatus {
            id,
            ..TenantStatus::default()
        };
        Self {
            status,
            weight,
            idle_since: None,
        }
    }

    const fn requests(&self) -> usize {
        self.status.waiting + self.status.in_flight
    }

    /// The tenant's part in the sum of the weights of tenants with requests.
    const fn active_weight(&self) -> u64 {
        if self.requests() > 0 {
            self.weight.0
        } else {
            0
        }
    }
}

impl TenantTable {
    /// The entry of a tenant whose request arrives, in a pool with these bounds. The common tenant has none in a pool without bounds.
    pub(crate) fn track(&mut self, id: TenantId, limits: Option<&TenantLimits>) -> TenantSlot {
        if id == TenantId::default() && limits.is_none() {
            return TenantSlot::UNTRACKED;
        }
        let slot = self.slots.get(&id).copied();
        let slot = slot.or_else(|| self.allocate(id, limits));
        let slot = slot.unwrap_or(TenantSlot::SHARED);
        self.change(slot, |_| ());
        slot
    }

    /// The entry of a tenant, if it has one of its own.
    pub(crate) fn slot_of(&self, id: TenantId) -> TenantSlot {
        let slot = self.slots.get(&id).copied();
        slot.unwrap_or(TenantSlot::UNTRACKED)
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

    /// Whether a tenant has more of the pool's requests, or of their tokens, than its largest share and than the part of its weight.
    #[expect(clippy::cast_precision_loss, reason = "numbers of requests and tokens")]
    pub(crate) fn exceeds_share(&self, slot: TenantSlot, limits: Option<&TenantLimits>) -> bool {
        let Some((entry, limits)) = self.entries.get(slot.index()).zip(limits) else {
            return false;
        };
        let exceeds = |own: u64, all: u64, share_max: Option<f64>| {
            let exceeds_part = u128::from(own) * u128::from(self.active)
                > u128::from(all) * u128::from(entry.weight.0);
            exceeds_part && share_max.is_some_and(|share| own as f64 > share * all as f64)
        };
        let (own, all) = (entry.requests() as u64, self.requests as u64);
        exceeds(own, all, limits.share_max)
            || exceeds(entry.status.tokens, self.tokens, limits.token_share_max)
    }

    /// Applies the weights of a new configuration.
    pub(crate) fn set_weights(&mut self, limits: Option<&TenantLimits>) {
        for entry in &mut self.entries {
            let id = entry.status.id;
            entry.weight = id.map_or(Weight::ONE, |id| Weight::of(id, limits));
        }
        self.active = self.entries.iter().map(TenantEntry::active_weight).sum();
    }

    /// Mean tokens of the requests that wait or are in flight, if there are any.
    pub(crate) const fn mean_tokens(&self) -> Option<u64> {
        self.tokens.checked_div(self.requests as u64)
    }

    /// Counts a request among those of its tenant that wait, or that are in flight.
    pub(crate) fn enter(
        &mut self,
        TenantCharge { slot, tokens }: TenantCharge,
        count: impl FnOnce(&mut TenantStatus) -> &mut usize,
    ) {
        self.requests += 1;
        self.tokens += tokens;
        self.change(slot, |status| {
            *count(status) += 1;
            status.tokens += tokens;
        });
    }

    /// Counts a request out that [`Self::enter`] has counted.
    pub(crate) fn leave(
        &mut self,
        TenantCharge { slot, tokens }: TenantCharge,
        count: impl FnOnce(&mut TenantStatus) -> &mut usize,
    ) {
        self.requests = self.requests.saturating_sub(1);
        self.tokens = self.tokens.saturating_sub(tokens);
        self.change(slot, |status| {
            let count = count(status);
            *count = count.saturating_sub(1);
            status.tokens = status.tokens.saturating_sub(tokens);
        });
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
        self.active -= entry.active_weight();
        change(&mut entry.status);
        self.active += entry.active_weight();
        let is_idle = entry.requests() == 0;
        let since = (is_idle && slot != TenantSlot::SHARED).then_some(self.tick);
        let before = core::mem::replace(&mut entry.idle_since, since);
        if let Some(before) = before {
            self.idle.remove(&(before, slot));
        }
        if let Some(since) = since {
            self.idle.insert((since, slot));
        }
    }

    /// Figures of every tenant with an entry, and of all others.
    pub(crate) fn all(&self) -> impl Iterator<Item = &TenantStatus> {
        let others = self.entries.iter().take(1);
        let others = others.filter(|entry| entry.status.requests > 0);
        let tracked = self.entries.iter().skip(1);
        tracked.chain(others).map(|entry| &entry.status)
    }

    /// Compares all sums with the requests and the tokens of each entry.
    #[cfg(test)]
    pub(crate) fn check(&self, sums: &BTreeMap<TenantSlot, (usize, u64)>) {
        let requests = sums.values().map(|(requests, _)| requests).sum();
        let tokens = sums.values().map(|(_, tokens)| tokens).sum();
        assert_eq!((self.requests, self.tokens), (requests, tokens));
        let mut active = 0;
        for (slot, entry) in (0..).map(TenantSlot).zip(&self.entries) {
            let sum = sums.get(&slot).copied().unwrap_or_default();
            assert_eq!((entry.requests(), entry.status.tokens), sum, "{entry:?}");
            active += if sum.0 > 0 { entry.weight.0 } else { 0 };
        }
        assert_eq!(self.active, active);
    }

    fn status(&self, slot: TenantSlot) -> Option<&TenantStatus> {
        self.entries.get(slot.index()).map(|entry| &entry.status)
    }

    /// A new entry, or that of the tenant that has been idle for longest. Its counts go to the shared entry.
    fn allocate(&mut self, id: TenantId, limits: Option<&TenantLimits>) -> Option<TenantSlot> {
        let entry = TenantEntry::new(Some(id), Weight::of(id, limits));
        let tracked_max = limits.map_or(TenantLimits::TRACKED_MAX, |limits| limits.tracked_max);
        let slot = if self.entries.len() <= tracked_max {
            let slot = TenantSlot(u32::try_from(self.entries.len()).ok()?);
            self.entries.push(entry);
            slot
        } else {
            let (_, slot) = self.idle.pop_first()?;
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: TenantLimits = TenantLimits {
        in_flight_max: Some(3),
        share_max: Some(0.4),
        token_share_max: Some(0.4),
        weights: BTreeMap::new(),
        tracked_max: 2,
    };

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
        assert_ne!(table.track(common, Some(&LIMITS)), TenantSlot::UNTRACKED);
        assert_ne!(table.track(TenantId(7), None), TenantSlot::UNTRACKED);
    }

    #[test]
    fn an_idle_tenant_yields_its_entry_and_an_active_one_does_not() {
        let mut table = TenantTable::default();
        let arrive = |table: &mut TenantTable, id, waiting| {
            let slot = table.track(TenantId(id), Some(&LIMITS));
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
        let slot = table.track(TenantId(1), Some(&LIMITS));
        table.change(slot, |status| (status.waiting, status.in_flight) = (1, 1));
        assert!(!table.has_in_flight_max(slot, Some(&LIMITS)));
        table.change(slot, |status| status.waiting = 2);
        assert!(table.has_in_flight_max(slot, Some(&LIMITS)));
        assert!(!table.has_in_flight_max(slot, None), "without bounds");
    }

    /// A table in which the tenants have these numbers of requests, each with so many tokens.
    fn with_requests(limits: &TenantLimits, tenants: &[(u64, u64, u64)]) -> TenantTable {
        let mut table = TenantTable::default();
        for (id, requests, tokens) in tenants {
            let slot = table.track(TenantId(*id), Some(limits));
            for _ in 0..*requests {
                table.enter(
                    TenantCharge {
                        slot,
                        tokens: *tokens,
                    },
                    |of| &mut of.in_flight,
                );
            }
        }
        table
    }

    fn exceeding(limits: &TenantLimits, tenants: &[(u64, u64, u64)]) -> Vec<u64> {
        let table = with_requests(limits, tenants);
        let exceeds = |id: &u64| table.exceeds_share(table.slot_of(TenantId(*id)), Some(limits));
        let ids = tenants.iter().map(|(id, ..)| *id);
        ids.filter(exceeds).collect()
    }

    fn limits(share_max: f64, weights: &[(u64, f64)]) -> TenantLimits {
        let weights = weights.iter();
        TenantLimits {
            share_max: Some(share_max),
            token_share_max: Some(share_max),
            weights: weights
                .map(|(id, weight)| (TenantId(*id), *weight))
                .collect(),
            tracked_max: 10,
            ..LIMITS
        }
    }

    #[test]
    fn a_tenant_may_have_an_equal_share_and_the_largest_one() {
        let limits = limits(0.4, &[]);
        let exceeding = |tenants: &[(u64, u64, u64)]| exceeding(&limits, tenants);
        assert_eq!(
            exceeding(&[(1, 18, 10)]),
            [],
            "no other tenant has requests"
        );
        assert_eq!(
            exceeding(&[(1, 2, 10), (2, 1, 10)]),
            [1],
            "an equal share is a half"
        );
        assert_eq!(exceeding(&[(1, 1, 10), (2, 1, 10)]), []);
        assert_eq!(
            exceeding(&[(1, 2, 10), (2, 1, 10), (3, 2, 10)]),
            [],
            "0.4 of all"
        );
        assert_eq!(
            exceeding(&[(1, 3, 10), (2, 1, 10), (3, 2, 10)]),
            [1],
            "0.5 of all"
        );
        let table = with_requests(&limits, &[(1, 2, 10), (2, 1, 10)]);
        let slot = table.slot_of(TenantId(1));
        assert!(!table.exceeds_share(slot, None), "without bounds");
    }

    #[test]
    fn long_prompts_exceed_the_share_of_tokens() {
        let limits = limits(0.4, &[]);
        let tenants = [(1, 1, 1_000), (2, 3, 100), (3, 3, 100), (4, 3, 100)];
        assert_eq!(exceeding(&limits, &tenants), [1]);
        let requests_only = TenantLimits {
            token_share_max: None,
            ..limits
        };
        assert_eq!(exceeding(&requests_only, &tenants), []);
    }

    #[test]
    fn a_tenant_may_have_the_part_of_its_weight_in_those_of_the_active_tenants() {
        let limits = limits(0.1, &[(1, 3.0), (2, 0.5)]);
        let tenants = [(1, 6, 1), (2, 1, 1), (3, 3, 1)];
        assert_eq!(exceeding(&limits, &tenants), [3], "3, 0.5 and 1 of 4.5");
        let mut table = with_requests(&limits, &tenants);
        let slot = table.slot_of(TenantId(1));
        table.set_weights(Some(&TenantLimits {
            weights: BTreeMap::new(),
            ..limits.clone()
        }));
        assert!(table.exceeds_share(slot, Some(&limits)), "equal weights");
    }
}
