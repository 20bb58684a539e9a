//! The peers of a pool: their state, the prefix index over them, and the set of the available ones.

use core::time::Duration;
use std::borrow::Cow;
use std::collections::BTreeMap;

use isotherm_fingerprint::BlockHash;

use super::peer::{ForwardEnd, Peer};
use crate::index::{PredictionRecord, PrefixIndex, PrefixMatch};
use crate::replica::BreakerPermit;
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::ring::Ring;
use crate::{
    IndexLimits, PeerAvailability, PeerCandidate, PeerId, PeerReport, PeerStatus, RegionRules,
    Request, Time,
};

#[derive(Debug)]
pub(crate) struct PeerTable {
    rules: RegionRules,
    peers: Vec<Option<Peer>>,
    slots: BTreeMap<PeerId, ReplicaIndex>,
    /// The prompts that were forwarded to each peer.
    pub(crate) index: PrefixIndex,
    pub(super) ring: Ring,
    available: ReplicaSet,
    /// Time at which the availability of a peer changes without an event.
    next_change: Option<Time>,
}

impl PeerTable {
    pub(crate) fn new(rules: RegionRules, limits: IndexLimits, seed: u64) -> Self {
        Self {
            rules,
            peers: Vec::new(),
            slots: BTreeMap::new(),
            index: PrefixIndex::new(limits, seed),
            ring: Ring::default(),
            available: ReplicaSet::default(),
            next_change: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Peers that may get a request, as of the last event.
    pub(crate) const fn available(&self) -> &ReplicaSet {
        &self.available
    }

    /// Peers that may get a request at `now`.
    pub(crate) fn available_at(&self, now: Time) -> ReplicaSet {
        let mut available = ReplicaSet::default();
        for slot in self.slots.values() {
            available.set(*slot, self.is_available(*slot, now));
        }
        available
    }

    pub(crate) const fn next_change(&self) -> Option<Time> {
        self.next_change
    }

    /// Status of every peer, in order of id.
    pub(crate) fn statuses(&self, now: Time) -> impl Iterator<Item = PeerStatus> + '_ {
        self.slots.values().filter_map(move |slot| {
            let bytes = self.index.held_bytes(*slot);
            Some(self.get(*slot)?.status(&self.rules, now, bytes))
        })
    }

    /// Every peer as a candidate for `request`, in order of name.
    pub(crate) fn candidates(&self, now: Time, request: &Request) -> Vec<PeerCandidate> {
        let candidate = |slot: &ReplicaIndex| {
            let peer = self.get(*slot)?;
            let blocks = request.fingerprint.blocks();
            let matched = self.index.deepest_of(blocks, *slot);
            Some(PeerCandidate {
                peer: peer.id,
                name: peer.name.clone(),
                matched_bytes: request.fingerprint.bytes_at(matched.depth),
                availability: peer.availability(&self.rules, now),
                estimated_ttft: peer.estimated_ttft(),
            })
        };
        let mut all: Vec<PeerCandidate> = self.slots.values().filter_map(candidate).collect();
        all.sort_by(|a, b| (&a.name, a.peer).cmp(&(&b.name, b.peer)));
        all
    }

    pub(crate) fn set_rules(&mut self, rules: RegionRules, limits: IndexLimits, now: Time) {
        self.rules = rules;
        self.index.set_limits(limits);
        self.refresh_all(now);
    }

    pub(crate) fn add(&mut self, id: PeerId, name: String, now: Time) {
        if self.slots.contains_key(&id) {
            return;
        }
        // There are tens of peers and thousands of indexes, and the index frees those of removed peers.
        let Some(slot) = self.index.join() else {
            return;
        };
        if self.peers.len() <= slot.index() {
            self.peers.resize_with(slot.index() + 1, || None);
        }
        self.ring.join(slot, &name);
        if let Some(entry) = self.peers.get_mut(slot.index()) {
            *entry = Some(Peer::new(id, name));
        }
        self.slots.insert(id, slot);
        self.refresh(slot, now);
    }

    pub(crate) fn remove(&mut self, id: PeerId, now: Time) {
        let Some(slot) = self.slots.remove(&id) else {
            return;
        };
        if let Some(peer) = self.peers.get_mut(slot.index()) {
            *peer = None;
        }
        self.ring.leave(slot);
        self.index.leave(slot);
        self.refresh(slot, now);
    }

    /// Handles a peer's report, which was asked for at `as_of`.
    pub(crate) fn on_report(
        &mut self,
        id: PeerId,
        report: PeerReport,
        as_of: Time,
        round_trip: Duration,
        now: Time,
    ) {
        let as_of = as_of.min(now);
        self.change(id, now, |peer| {
            peer.on_report(report, as_of, round_trip, now);
        });
    }

    pub(crate) fn on_loss(&mut self, id: PeerId, now: Time) {
        self.change(id, now, Peer::on_loss);
    }

    /// Handles a request that a peer returned. Returns whether the peer is known.
    pub(crate) fn on_return(&mut self, id: PeerId, now: Time) -> bool {
        self.change(id, now, |peer| peer.on_return(now)).is_some()
    }

    /// Handles a request of so many tokens, maybe batch work, that is forwarded to the peer at `slot`, which holds the `matched` blocks.
    pub(crate) fn on_forward(
        &mut self,
        slot: ReplicaIndex,
        matched: &PrefixMatch,
        blocks: &[BlockHash],
        (tokens, is_batch): (u32, bool),
        now: Time,
    ) -> Option<(BreakerPermit, PredictionRecord)> {
        let id = self.get(slot)?.id;
        let permit = self.change(id, now, |peer| peer.on_forward(tokens, is_batch, now))?;
        Some((permit, self.index.record(blocks, slot, matched)))
    }

    /// Handles the end of a forwarded request.
    pub(crate) fn on_end(&mut self, id: PeerId, permit: BreakerPermit, end: ForwardEnd, now: Time) {
        self.change(id, now, |peer| peer.on_end(permit, end, now));
    }

    /// Removes the index entries of a request that did not reach the peer.
    pub(crate) fn retract(
        &mut self,
        id: PeerId,
        blocks: &[BlockHash],
        recorded: &PredictionRecord,
    ) {
        if let Some(slot) = self.slots.get(&id) {
            self.index.retract(blocks, *slot, recorded);
        }
    }

    /// Handles a request that a sibling forwarded. Returns whether the index could attach its blocks.
    pub(crate) fn on_shared(
        &mut self,
        id: PeerId,
        parent: Option<BlockHash>,
        blocks: &[BlockHash],
        now: Time,
    ) -> bool {
        self.change(id, now, |peer| peer.on_send(now));
        let slot = self.slots.get(&id).copied();
        slot.is_some_and(|slot| self.index.attach(slot, parent, blocks))
    }

    /// Whether an untried peer has replicas of this pool, busy or not.
    pub(crate) fn has_replicas(&self, tried: &[PeerId], now: Time) -> bool {
        let mut all = self.peers.iter().flatten();
        all.any(|peer| peer.has_replicas(&self.rules, now) && !tried.contains(&peer.id))
    }

    /// The available peers that would start a batch request now.
    pub(crate) fn with_batch_credit(&self, available: &ReplicaSet) -> ReplicaSet {
        let mut with_credit = ReplicaSet::default();
        let has_credit =
            |slot: &ReplicaIndex| self.get(*slot).is_some_and(|p| p.batch_credit_left() > 0);
        for slot in available.iter().filter(has_credit) {
            with_credit.set(slot, true);
        }
        with_credit
    }

    /// Whether one of these peers was not tried.
    pub(crate) fn has_untried(&self, peers: &ReplicaSet, tried: &[PeerId]) -> bool {
        let is_untried = |slot| self.get(slot).is_some_and(|peer| !tried.contains(&peer.id));
        peers.iter().any(is_untried)
    }

    /// Updates availability for reports that have become stale and breakers that admit a trial.
    pub(crate) fn expire(&mut self, now: Time) {
        if self.next_change.is_some_and(|time| time <= now) {
            self.refresh_all(now);
        }
    }

    pub(super) fn get(&self, slot: ReplicaIndex) -> Option<&Peer> {
        self.peers.get(slot.index())?.as_ref()
    }

    /// Returns the available peers except the tried ones.
    pub(super) fn untried<'a>(
        &self,
        available: &'a ReplicaSet,
        tried: &[PeerId],
    ) -> Cow<'a, ReplicaSet> {
        let mut untried = Cow::Borrowed(available);
        for slot in tried.iter().filter_map(|id| self.slots.get(id)) {
            untried.to_mut().set(*slot, false);
        }
        untried
    }

    fn is_available(&self, slot: ReplicaIndex, now: Time) -> bool {
        self.get(slot)
            .is_some_and(|peer| peer.availability(&self.rules, now) == PeerAvailability::Available)
    }

    /// Applies a change to a peer, and updates its availability; `None` for an unknown peer.
    fn change<T>(
        &mut self,
        id: PeerId,
        now: Time,
        change: impl FnOnce(&mut Peer) -> T,
    ) -> Option<T> {
        let slot = self.slots.get(&id).copied()?;
        let peer = self.peers.get_mut(slot.index())?.as_mut()?;
        let result = change(peer);
        self.refresh(slot, now);
        Some(result)
    }

    fn refresh(&mut self, slot: ReplicaIndex, now: Time) {
        self.available.set(slot, self.is_available(slot, now));
        self.refresh_next_change(now);
    }

    fn refresh_all(&mut self, now: Time) {
        self.available = self.available_at(now);
        self.refresh_next_change(now);
    }

    fn refresh_next_change(&mut self, now: Time) {
        let peers = self.peers.iter().flatten();
        self.next_change = peers
            .filter_map(|peer| peer.next_change(&self.rules, now))
            .min();
    }
}
