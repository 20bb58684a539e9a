//! The peers of a pool: their state, the prefix index over them, and the set of the available ones.

use core::time::Duration;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use isotherm_fingerprint::BlockHash;

use super::forwarded::{ForwardTarget, ForwardedRequest, ForwardedTable};
use super::peer::{ForwardEnd, Peer};
use crate::index::PrefixIndex;
use crate::queue::{Band, QueueSeq, QueuedRequest};
use crate::replica::Evidence;
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::ring::Ring;
use crate::{
    End, IndexLimits, PeerAvailability, PeerCandidate, PeerId, PeerReport, PeerStatus, RegionRules,
    Request, RequestId, ServedBy, Time,
};

#[derive(Debug)]
pub(crate) struct PeerTable {
    rules: RegionRules,
    peers: Vec<Option<Peer>>,
    slots: BTreeMap<PeerId, ReplicaIndex>,
    /// The prompts that were forwarded to each peer.
    pub(crate) index: PrefixIndex,
    pub(super) ring: Ring,
    pub(crate) forwarded: ForwardedTable,
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
            forwarded: ForwardedTable::default(),
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

    /// Handles a request that leaves for a peer. Returns whether the peer is known.
    pub(crate) fn on_forward(
        &mut self,
        queued: &QueuedRequest,
        target: &ForwardTarget,
        now: Time,
    ) -> bool {
        let (request, tokens) = (&queued.request, queued.request.prompt_tokens);
        let is_batch = queued.band == Band::Held;
        let forward = |peer: &mut Peer| peer.on_forward(tokens, is_batch, now);
        let Some(permit) = self.change(target.peer, now, forward) else {
            return false;
        };
        let blocks = request.fingerprint.blocks();
        let recorded = self.index.record(blocks, target.slot, &target.matched);
        self.forwarded.insert(
            request.id,
            ForwardedRequest {
                peer: target.peer,
                permit,
                forwarded_at: now,
                seq: queued.seq,
                arrived: queued.arrived,
                entered: queued.entered,
                fingerprint: Arc::clone(&request.fingerprint),
                session: request.session,
                recorded,
                has_returned: false,
            },
        );
        true
    }

    /// Recognises a request that a peer returned. Returns its position, its first arrival, and the start of its waits.
    pub(crate) fn take_returned(
        &mut self,
        peer: PeerId,
        request: &Request,
    ) -> Option<(QueueSeq, Time, Time)> {
        let forwarded = self.forwarded.take_returned(peer, request)?;
        if let Some(slot) = self.slots.get(&peer) {
            let blocks = forwarded.fingerprint.blocks();
            self.index.retract(blocks, *slot, &forwarded.recorded);
        }
        Some((forwarded.seq, forwarded.arrived, forwarded.entered))
    }

    /// Handles the end of a forwarded request. Returns whether it ended at the peer. The end of a request that returned counts under
    /// its new id.
    pub(crate) fn on_end(
        &mut self,
        request: &ForwardedRequest,
        served_by: ServedBy,
        end: End,
        now: Time,
    ) -> bool {
        // A report of another server means that the request returned, perhaps to a sibling.
        let is_elsewhere = served_by != ServedBy::Unreported || request.has_returned;
        let forward_end = if is_elsewhere {
            let forwarded_at = request.forwarded_at;
            ForwardEnd::ServedElsewhere { forwarded_at }
        } else {
            ForwardEnd::Ended(Evidence::of(end))
        };
        let permit = request.permit;
        self.change(request.peer, now, |peer| {
            peer.on_end(permit, forward_end, now);
        });
        // The entries of a request that returned went then.
        let is_at_peer = !is_elsewhere && end == End::Answered;
        if !is_at_peer
            && !request.has_returned
            && let Some(slot) = self.slots.get(&request.peer)
        {
            let blocks = request.fingerprint.blocks();
            self.index.retract(blocks, *slot, &request.recorded);
        }
        !is_elsewhere
    }

    /// Handles the abort of a request. Returns whether it was forwarded.
    pub(crate) fn on_abort(&mut self, id: RequestId, now: Time) -> bool {
        let Some(request) = self.forwarded.remove(id) else {
            return false;
        };
        let has_returned = request.has_returned;
        let end = ForwardEnd::Aborted { has_returned };
        self.change(request.peer, now, |peer| {
            peer.on_end(request.permit, end, now);
        });
        true
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
