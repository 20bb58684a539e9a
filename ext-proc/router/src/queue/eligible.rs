//! Queued requests by the replicas that may serve them.
//!
//! A request that any replica may serve is in one set, a restricted request under each of its replicas. A search for one
//! replica then meets no request of another one.

use std::collections::BTreeMap;

use super::line::Span;
use super::line_set::{self, LineSet, TenantWindow};
use super::{LinePlace, QueueSeq};
use crate::replica_index::ReplicaIndex;
use crate::tenants::{Charge, TenantAccount, TenantSlot};

#[derive(Debug)]
pub(super) struct EligibleSet {
    /// Whether each tenant has a line of its own.
    is_fair: bool,
    /// The requests that any replica may serve.
    open: LineSet,
    /// The restricted requests, each once.
    restricted: LineSet,
    /// The restricted requests, under each replica that may serve them.
    pinned: BTreeMap<ReplicaIndex, LineSet>,
    /// Number of pairs of a restricted request and a replica that may serve it.
    pins: usize,
}

impl Default for EligibleSet {
    fn default() -> Self {
        Self::new(false)
    }
}

impl EligibleSet {
    pub(super) fn new(is_fair: bool) -> Self {
        Self {
            is_fair,
            open: LineSet::new(is_fair),
            restricted: LineSet::new(is_fair),
            pinned: BTreeMap::new(),
            pins: 0,
        }
    }

    pub(super) fn insert(
        &mut self,
        place: LinePlace,
        pinned: Option<&[ReplicaIndex]>,
        tenant: TenantAccount,
    ) {
        let Some(replicas) = pinned else {
            self.open.insert(place, tenant);
            return;
        };
        self.restricted.insert(place, tenant);
        self.pins += replicas.len();
        for replica in replicas {
            let set = self.pinned.entry(*replica);
            set.or_insert_with(|| LineSet::new(self.is_fair))
                .insert(place, tenant);
        }
    }

    pub(super) fn remove(
        &mut self,
        place: LinePlace,
        pinned: Option<&[ReplicaIndex]>,
        tenant: TenantSlot,
    ) {
        if self.is_empty() {
            return;
        }
        let Some(replicas) = pinned else {
            self.open.remove(place, tenant);
            return;
        };
        self.restricted.remove(place, tenant);
        for replica in replicas {
            self.unpin(place, *replica, tenant);
        }
    }

    /// Removes a restricted request from one of its replicas.
    pub(super) fn unpin(&mut self, place: LinePlace, replica: ReplicaIndex, tenant: TenantSlot) {
        let Some(set) = self.pinned.get_mut(&replica) else {
            return;
        };
        if set.remove(place, tenant) {
            self.pins -= 1;
        }
        if set.is_empty() {
            self.pinned.remove(&replica);
        }
    }

    /// Requests in no particular order.
    pub(super) fn seqs(&self) -> impl Iterator<Item = QueueSeq> + '_ {
        let all = self.open.iter().chain(self.restricted.iter());
        all.map(LinePlace::seq)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.restricted.is_empty()
    }

    /// Number of pairs of a restricted request and a replica that may serve it.
    pub(super) const fn pins(&self) -> usize {
        self.pins
    }

    /// Restricted requests of a replica, up to so many.
    pub(super) fn pinned_to(&self, replica: ReplicaIndex, at_most: usize) -> Vec<LinePlace> {
        let set = self.pinned.get(&replica).into_iter();
        set.flat_map(LineSet::iter).take(at_most).collect()
    }

    pub(super) fn has_pinned_to(&self, replica: ReplicaIndex) -> bool {
        self.pinned.contains_key(&replica)
    }

    /// Whether a replica may serve any of the requests.
    pub(super) fn has_for(&self, replica: ReplicaIndex) -> bool {
        !self.open.is_empty() || self.has_pinned_to(replica)
    }

    /// Registers a tenant's new charge.
    pub(super) fn set_charge(&mut self, tenant: TenantAccount) {
        if !self.is_fair {
            return;
        }
        self.open.set_charge(tenant);
        if self.pins > 0 {
            self.restricted.set_charge(tenant);
            for set in self.pinned.values_mut() {
                set.set_charge(tenant);
            }
        }
    }

    /// Least and largest charge of the tenants with requests here, if there are any.
    pub(super) fn charges(&self) -> Option<(Charge, Charge)> {
        let ends = |set: &LineSet| {
            let mut charges = set.charges();
            let least = charges.next()?;
            Some((least, charges.next_back().unwrap_or(least)))
        };
        let both = [ends(&self.open), ends(&self.restricted)];
        let both = both.into_iter().flatten();
        both.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// The least charged tenant with requests here, with fairness between tenants.
    pub(super) fn least_charged(&self) -> Option<TenantSlot> {
        let both = [&self.open, &self.restricted].into_iter();
        let (_, tenant) = both.filter_map(LineSet::least_charged).min()?;
        Some(tenant)
    }

    /// Charge of a tenant with requests here, with fairness between tenants.
    pub(super) fn charge_of(&self, tenant: TenantSlot) -> Option<Charge> {
        let in_restricted = || self.restricted.charge_of(tenant);
        self.open.charge_of(tenant).or_else(in_restricted)
    }

    /// The tenants that are shown to a replica; `None` without fairness between tenants.
    pub(super) fn window(
        &self,
        replica: Option<ReplicaIndex>,
        quantum: Charge,
    ) -> Option<TenantWindow> {
        if self.is_fair {
            line_set::window(self.sets(replica), quantum)
        } else {
            None
        }
    }

    /// Positions of a span that a replica may serve, or of the whole span, in order.
    pub(super) fn positions<'a>(
        &'a self,
        replica: Option<ReplicaIndex>,
        span: &Span,
        window: Option<&TenantWindow>,
    ) -> impl Iterator<Item = LinePlace> + use<'a> {
        line_set::positions(self.sets(replica), span, window)
    }

    fn sets(&self, replica: Option<ReplicaIndex>) -> [Option<&LineSet>; 2] {
        let other = match replica {
            Some(replica) => self.pinned.get(&replica),
            None => Some(&self.restricted),
        };
        [Some(&self.open), other]
    }
}
