//! To which peer region a request goes.
//!
//! Under `consistent_hash` the ring over peers says so, by session, as the ring over replicas does one layer below. Else
//! the longest match in the index over peers, when it is at least half of the prompt: there the cache is warm. A shorter
//! one is worth less than the wait: then the smallest estimated time to first token, which is the round trip and what
//! the peer's queue takes to drain. Among equals, whoever has more room.
//!
//! Rejected: the least loaded peer, as SkyLB does below half a match: regions differ in size, and a slow queue nearby can be
//! later than a free replica far away. Adding the computation of the prompt: it is the same everywhere below half a match.

use core::cmp::Reverse;
use core::time::Duration;

use super::Peers;
use crate::index::PrefixMatch;
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::{PeerAvailability, PeerCandidate, PeerId, PolicyName, Reason, Request, Time};

/// The share of the prompt from which a match decides.
const MATCH_MIN: f64 = 0.5;

/// Where a request goes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ForwardTarget {
    pub(crate) slot: ReplicaIndex,
    pub(crate) peer: PeerId,
    pub(crate) reason: Reason,
    /// How much of the prompt the peer was sent before.
    pub(crate) matched: PrefixMatch,
    pub(crate) estimated_ttft: Duration,
}

impl Peers {
    /// Where this request goes among those that are available and have not been tried, if anywhere.
    pub(crate) fn choose(
        &self,
        request: &Request,
        tried: &[PeerId],
        policy: PolicyName,
    ) -> Option<ForwardTarget> {
        self.choose_among(request, tried, policy, &self.available)
    }

    /// The same as of a time when the sets were not brought up to date: for explanations only.
    pub(crate) fn choose_at(
        &self,
        now: Time,
        request: &Request,
        tried: &[PeerId],
        policy: PolicyName,
    ) -> Option<ForwardTarget> {
        let mut available = ReplicaSet::default();
        for slot in self.slots.values() {
            available.set(*slot, self.is_available(*slot, now));
        }
        self.choose_among(request, tried, policy, &available)
    }

    /// Whether somebody is available who was not tried.
    pub(crate) fn is_open_to(&self, tried: &[PeerId]) -> bool {
        let untried = |slot| self.id_of(slot).is_some_and(|id| !tried.contains(&id));
        self.available.iter().any(untried)
    }

    /// Every peer, as it looks to this request, in order of name.
    pub(crate) fn candidates(&self, now: Time, request: &Request) -> Vec<PeerCandidate> {
        let mut all: Vec<PeerCandidate> = self
            .slots
            .values()
            .filter_map(|slot| {
                let peer = self.get(*slot)?;
                let matched = self.index.deepest_of(request.fingerprint.blocks(), *slot);
                Some(PeerCandidate {
                    peer: peer.id,
                    name: peer.name.clone(),
                    matched_bytes: request.fingerprint.bytes_at(matched.depth),
                    availability: peer.availability(&self.rules, now),
                    estimated_ttft: peer.estimated_ttft(),
                })
            })
            .collect();
        all.sort_by(|a, b| (&a.name, a.peer).cmp(&(&b.name, b.peer)));
        all
    }

    pub(super) fn is_available(&self, slot: ReplicaIndex, now: Time) -> bool {
        self.get(slot)
            .is_some_and(|peer| peer.availability(&self.rules, now) == PeerAvailability::Available)
    }

    fn choose_among(
        &self,
        request: &Request,
        tried: &[PeerId],
        policy: PolicyName,
        available: &ReplicaSet,
    ) -> Option<ForwardTarget> {
        let mut untried;
        let candidates = if tried.is_empty() {
            available
        } else {
            untried = available.clone();
            for id in tried {
                if let Some(slot) = self.slots.get(id) {
                    untried.set(*slot, false);
                }
            }
            &untried
        };
        if candidates.is_empty() {
            return None;
        }
        let blocks = request.fingerprint.blocks();
        let (slot, reason, matched) = if policy == PolicyName::ConsistentHash {
            (
                self.ring.walk(request, candidates, &[])?,
                Reason::Ring,
                None,
            )
        } else {
            let matched = self.index.deepest(blocks, candidates);
            let holders = self.index.targets(&matched, candidates);
            let warm = (request.fingerprint.share_at(matched.depth) >= MATCH_MIN)
                .then(|| self.soonest(holders))
                .flatten();
            match warm {
                Some(slot) => (slot, Reason::Prefix, Some(matched)),
                None => (self.soonest(candidates.iter())?, Reason::Soonest, None),
            }
        };
        let peer = self.get(slot)?;
        Some(ForwardTarget {
            slot,
            peer: peer.id,
            reason,
            matched: matched.unwrap_or_else(|| self.index.deepest_of(blocks, slot)),
            estimated_ttft: peer.estimated_ttft()?,
        })
    }

    /// Who is expected to begin first.
    fn soonest(&self, among: impl Iterator<Item = ReplicaIndex>) -> Option<ReplicaIndex> {
        among
            .filter_map(|slot| {
                let peer = self.get(slot)?;
                let ttft = peer.estimated_ttft()?;
                Some((ttft, Reverse(peer.free_capacity_left()), peer.id, slot))
            })
            .min()
            .map(|(_, _, _, slot)| slot)
    }

    fn id_of(&self, slot: ReplicaIndex) -> Option<PeerId> {
        self.get(slot).map(|peer| peer.id)
    }
}
