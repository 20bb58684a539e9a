//! Queued requests by the replicas that may serve them.
//!
//! A request that any replica may serve is in one set, a restricted request under each of its replicas. A search for one
//! replica then meets no request of another one.

use std::collections::{BTreeMap, BTreeSet};

use super::LinePlace;
use super::line::Span;
use crate::replica_index::ReplicaIndex;

#[derive(Debug, Default)]
pub(super) struct EligibleSet {
    /// The requests that any replica may serve.
    open: BTreeSet<LinePlace>,
    /// The restricted requests, each once.
    restricted: BTreeSet<LinePlace>,
    /// The restricted requests, under each replica that may serve them.
    pinned: BTreeMap<ReplicaIndex, BTreeSet<LinePlace>>,
    /// Number of pairs of a restricted request and a replica that may serve it.
    pins: usize,
}

impl EligibleSet {
    pub(super) fn insert(&mut self, place: LinePlace, pinned: Option<&[ReplicaIndex]>) {
        let Some(replicas) = pinned else {
            self.open.insert(place);
            return;
        };
        self.restricted.insert(place);
        self.pins += replicas.len();
        for replica in replicas {
            self.pinned.entry(*replica).or_default().insert(place);
        }
    }

    pub(super) fn remove(&mut self, place: LinePlace, pinned: Option<&[ReplicaIndex]>) {
        if self.is_empty() {
            return;
        }
        let Some(replicas) = pinned else {
            self.open.remove(&place);
            return;
        };
        self.restricted.remove(&place);
        for replica in replicas {
            self.unpin(place, *replica);
        }
    }

    /// Removes a restricted request from one of its replicas.
    pub(super) fn unpin(&mut self, place: LinePlace, replica: ReplicaIndex) {
        let Some(places) = self.pinned.get_mut(&replica) else {
            return;
        };
        if places.remove(&place) {
            self.pins -= 1;
        }
        if places.is_empty() {
            self.pinned.remove(&replica);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.open.len() + self.restricted.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.restricted.is_empty()
    }

    /// The first of all requests by position.
    pub(super) fn first(&self) -> Option<LinePlace> {
        let both = [self.open.first(), self.restricted.first()];
        both.into_iter().flatten().min().copied()
    }

    /// The last of all requests by position.
    pub(super) fn last(&self) -> Option<LinePlace> {
        let both = [self.open.last(), self.restricted.last()];
        both.into_iter().flatten().max().copied()
    }

    /// Number of pairs of a restricted request and a replica that may serve it.
    pub(super) const fn pins(&self) -> usize {
        self.pins
    }

    /// Restricted requests of a replica, up to so many.
    pub(super) fn pinned_to(&self, replica: ReplicaIndex, at_most: usize) -> Vec<LinePlace> {
        let places = self.pinned.get(&replica).into_iter().flatten();
        places.take(at_most).copied().collect()
    }

    pub(super) fn has_pinned_to(&self, replica: ReplicaIndex) -> bool {
        self.pinned.contains_key(&replica)
    }

    /// Whether a replica may serve any of the requests.
    pub(super) fn has_for(&self, replica: ReplicaIndex) -> bool {
        !self.open.is_empty() || self.has_pinned_to(replica)
    }

    /// Positions of a span that one of the replicas may serve, in order.
    pub(super) fn positions<'a>(
        &'a self,
        replicas: &[ReplicaIndex],
        span: &Span,
    ) -> impl Iterator<Item = LinePlace> + use<'a> {
        span.merged(&mut self.sets(replicas))
    }

    /// The sets of the positions that one of the replicas may serve.
    pub(super) fn sets<'a>(
        &'a self,
        replicas: &[ReplicaIndex],
    ) -> impl Iterator<Item = &'a BTreeSet<LinePlace>> {
        let pinned = replicas
            .iter()
            .filter_map(|replica| self.pinned.get(replica));
        core::iter::once(&self.open).chain(pinned)
    }

    /// All positions, in order.
    pub(super) fn all(&self) -> impl Iterator<Item = LinePlace> + '_ {
        Span::ALL.merged(&mut [&self.open, &self.restricted].into_iter())
    }
}
