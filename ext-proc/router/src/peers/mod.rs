//! Peer regions: who has room, and who was sent which prefix (SkyLB 3.1 and 3.3).
//!
//! The second layer of the router, over regions instead of replicas: its own prefix index, its own ring, its own sets.
//! There are tens of peers, so what changes with one of them is kept ready, and a walk over all is what an event costs
//! at most; the replicas behind them play no part.

mod choice;
mod peer;
mod window;

pub(crate) use choice::ForwardTarget;

use core::time::Duration;
use std::collections::BTreeMap;

use isotherm_fingerprint::BlockHash;

use crate::index::{PredictionRecord, PrefixIndex};
use crate::replica::{BreakerPermit, Evidence};
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::ring::Ring;
use crate::{IndexLimits, IndexStats, PeerId, PeerReport, PeerSpec, PeerStatus, RegionRules, Time};
use peer::Peer;

/// After so many wrong predictions in a row a peer's caches are taken to have lost what the index holds of a prompt.
const FALSE_HITS_MAX: u32 = 3;

/// A peer that a request was forwarded to, as long as it is the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerHandle {
    pub(crate) id: PeerId,
    life: u64,
}

/// All peer regions of a pool.
#[derive(Debug)]
pub(crate) struct Peers {
    rules: RegionRules,
    peers: Vec<Option<Peer>>,
    slots: BTreeMap<PeerId, ReplicaIndex>,
    index: PrefixIndex,
    ring: Ring,
    available: ReplicaSet,
    /// When the next one changes by itself.
    next_change: Option<Time>,
    lives: u64,
}

impl Peers {
    pub(crate) fn new(rules: RegionRules, limits: IndexLimits, seed: u64) -> Self {
        Self {
            rules,
            peers: Vec::new(),
            slots: BTreeMap::new(),
            index: PrefixIndex::new(limits, seed),
            ring: Ring::default(),
            available: ReplicaSet::default(),
            next_change: None,
            lives: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Who may be forwarded a request now.
    pub(crate) const fn available(&self) -> &ReplicaSet {
        &self.available
    }

    /// When the next one changes by itself.
    pub(crate) const fn next_change(&self) -> Option<Time> {
        self.next_change
    }

    /// What the index over peers holds.
    pub(crate) fn index_stats(&self) -> IndexStats {
        self.index.stats()
    }

    /// Every peer, in order of identity.
    pub(crate) fn all(&self, now: Time) -> impl Iterator<Item = PeerStatus> + '_ {
        self.slots.values().filter_map(move |slot| {
            let bytes = self.index.held_bytes(*slot);
            Some(self.get(*slot)?.status(&self.rules, now, bytes))
        })
    }

    /// Other rules.
    pub(crate) fn set_rules(&mut self, rules: RegionRules, limits: IndexLimits, now: Time) {
        self.rules = rules;
        self.index.set_limits(limits);
        self.refresh_all(now);
    }

    /// A peer joined.
    pub(crate) fn add(&mut self, id: PeerId, spec: PeerSpec, now: Time) {
        if self.slots.contains_key(&id) {
            return;
        }
        // There are tens of regions and thousands of slots, and those of who left are used again.
        let Some(slot) = self.index.join() else {
            return;
        };
        if self.peers.len() <= slot.index() {
            self.peers.resize_with(slot.index() + 1, || None);
        }
        self.ring.join(slot, &spec.name);
        self.lives += 1;
        if let Some(place) = self.peers.get_mut(slot.index()) {
            *place = Some(Peer::new(id, self.lives, spec));
        }
        self.slots.insert(id, slot);
        self.refresh(slot, now);
    }

    /// A peer left.
    pub(crate) fn remove(&mut self, id: PeerId, now: Time) {
        let Some(slot) = self.slots.remove(&id) else {
            return;
        };
        let peer = self.peers.get_mut(slot.index()).and_then(Option::take);
        if let Some(peer) = peer {
            self.ring.leave(slot, &peer.name);
        }
        self.index.leave(slot);
        self.refresh(slot, now);
    }

    /// A peer said this when it was asked at `as_of`.
    pub(crate) fn reported(
        &mut self,
        id: PeerId,
        report: PeerReport,
        as_of: Time,
        round_trip: Duration,
        now: Time,
    ) {
        let as_of = as_of.min(now);
        self.change(id, now, |peer| {
            peer.reported(report, as_of, round_trip, now);
        });
    }

    /// A peer is not heard any more.
    pub(crate) fn lost(&mut self, id: PeerId, now: Time) {
        self.change(id, now, Peer::lost);
    }

    /// A request came back from a peer; says whether it is known.
    pub(crate) fn returned(&mut self, id: PeerId, now: Time) -> bool {
        self.change(id, now, |peer| peer.returned(now)).is_some()
    }

    /// A request goes to a peer.
    pub(crate) fn forwarded(
        &mut self,
        target: &ForwardTarget,
        blocks: &[BlockHash],
        now: Time,
    ) -> Option<(PeerHandle, BreakerPermit, PredictionRecord)> {
        let peer = self.get(target.slot)?;
        let handle = PeerHandle {
            id: peer.id,
            life: peer.life,
        };
        let sent = self.change(handle.id, now, |peer| peer.forwarded(now))?;
        let recorded = self.index.record(blocks, target.slot, &target.matched);
        Some((handle, sent, recorded))
    }

    /// A forwarded request has ended, and says this of its peer.
    pub(crate) fn ended(
        &mut self,
        handle: PeerHandle,
        sent: BreakerPermit,
        evidence: Evidence,
        now: Time,
    ) {
        if self.current(handle).is_some() {
            self.change(handle.id, now, |peer| peer.ended(sent, evidence, now));
        }
    }

    /// The client of a forwarded request went away.
    pub(crate) fn aborted(
        &mut self,
        handle: PeerHandle,
        sent: BreakerPermit,
        came_back: bool,
        now: Time,
    ) {
        if self.current(handle).is_some() {
            self.change(handle.id, now, |peer| peer.aborted(sent, came_back, now));
        }
    }

    /// A request that came back has ended, sent there at this time.
    pub(crate) fn ended_elsewhere(
        &mut self,
        handle: PeerHandle,
        sent: BreakerPermit,
        at: Time,
        now: Time,
    ) {
        if self.current(handle).is_some() {
            self.change(handle.id, now, |peer| peer.ended_elsewhere(sent, at, now));
        }
    }

    /// A request did not reach the peer after all: takes back what recording it added.
    pub(crate) fn retract(
        &mut self,
        handle: PeerHandle,
        blocks: &[BlockHash],
        recorded: &PredictionRecord,
    ) {
        if let Some(slot) = self.current(handle) {
            self.index.retract(blocks, slot, recorded);
        }
    }

    /// A peer's engines had as much of a prompt as was predicted, or only so many blocks of it. By now one of them has
    /// it all, so a single false prediction tells nothing about the next turn. Several in a row do: the region does
    /// not keep what it is sent, and its part of the prompt is forgotten.
    pub(crate) fn predicted(
        &mut self,
        handle: PeerHandle,
        blocks: &[BlockHash],
        wrong: Option<usize>,
    ) {
        let Some(slot) = self.current(handle) else {
            return;
        };
        let Some(Some(peer)) = self.peers.get_mut(slot.index()) else {
            return;
        };
        let Some(kept) = wrong else {
            peer.false_hits = 0;
            return;
        };
        peer.false_hits = peer.false_hits.saturating_add(1);
        if peer.false_hits >= FALSE_HITS_MAX {
            self.index.forget_past(blocks, slot, kept);
        }
    }

    /// A sibling has forwarded a request to a peer; says whether its prefix is known here.
    pub(crate) fn shared(
        &mut self,
        id: PeerId,
        parent: Option<BlockHash>,
        blocks: &[BlockHash],
        now: Time,
    ) -> bool {
        self.change(id, now, |peer| peer.pushed(now));
        let slot = self.slots.get(&id).copied();
        slot.is_some_and(|slot| self.index.attach(slot, parent, blocks))
    }

    /// Whether some peer that was not tried has replicas for this pool, be they taken.
    pub(crate) fn may_serve(&self, tried: &[PeerId]) -> bool {
        let mut all = self.peers.iter().flatten();
        all.any(|peer| peer.serves() && !tried.contains(&peer.id))
    }

    /// Time passes: reports grow old, and failing peers are due for a trial.
    pub(crate) fn expire(&mut self, now: Time) {
        if self.next_change.is_some_and(|time| time <= now) {
            self.refresh_all(now);
        }
    }

    fn get(&self, slot: ReplicaIndex) -> Option<&Peer> {
        self.peers.get(slot.index())?.as_ref()
    }

    /// Where a peer is, if it is still the same one.
    fn current(&self, handle: PeerHandle) -> Option<ReplicaIndex> {
        let slot = self.slots.get(&handle.id).copied()?;
        let same = self.get(slot).is_some_and(|peer| peer.life == handle.life);
        same.then_some(slot)
    }

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

    /// Whether one is available now, and when the next one changes.
    fn refresh(&mut self, slot: ReplicaIndex, now: Time) {
        let open = self.is_available(slot, now);
        self.available.set(slot, open);
        self.next_change = self
            .peers
            .iter()
            .flatten()
            .filter_map(|peer| peer.next_change(&self.rules, now))
            .min();
    }

    fn refresh_all(&mut self, now: Time) {
        for slot in self.slots.values() {
            let open = self.is_available(*slot, now);
            self.available.set(*slot, open);
        }
        self.next_change = self
            .peers
            .iter()
            .flatten()
            .filter_map(|peer| peer.next_change(&self.rules, now))
            .min();
    }
}
