//! Claims of this region on the replicas of others (`docs/design/recovery.md`).
//!
//! A region claims by default. A region that yields advertises it, and must ask every region again before it claims again.

use super::event::{AdoptionBlocker, ReleaseReason};
use super::message::RegionName;
use super::peer::{Claim, PeerRegion};
use super::records::{newest_common, rank};
use super::{BLOCKED_INTERVALS, Regions};
use isotherm_router::PeerId;

impl Regions {
    /// Updates every claim, and releases replicas that this region may not keep.
    pub(super) fn update_claims(&mut self) {
        let ids: Vec<PeerId> = self.peers.keys().copied().collect();
        for &id in &ids {
            self.expire_claim(id);
            let reason = self.yield_reason(id);
            let is_requested = reason.is_none() && self.should_request(id);
            let seq = self.seq;
            let Some(peer) = self.peers.get_mut(&id) else {
                continue;
            };
            peer.claim.is_requested = is_requested;
            match reason {
                Some(reason) => {
                    peer.claim.claimed_since_seq = None;
                    self.release(id, reason);
                }
                None => {
                    peer.claim.claimed_since_seq = peer.claim.claimed_since_seq.or(Some(seq));
                }
            }
        }
        self.update_advertisement();
    }

    fn update_advertisement(&mut self) {
        let names = |wanted: fn(&Claim) -> bool| {
            let peers = self.peers.values().filter(move |peer| wanted(&peer.claim));
            peers.map(|peer| peer.name.clone())
        };
        let holds = names(|claim| claim.is_adopted).chain(self.adopted_by_siblings.iter().cloned());
        let (holds, yields, asks) = (
            holds.collect(),
            names(|claim| claim.claimed_since_seq.is_none()).collect(),
            names(|claim| claim.is_requested).collect(),
        );
        if (
            &self.advertisement.adopted,
            &self.advertisement.yielded,
            &self.advertisement.requested,
        ) != (&holds, &yields, &asks)
        {
            self.advertisement.adopted = holds;
            self.advertisement.yielded = yields;
            self.advertisement.requested = asks;
            self.advertisement.version += 1;
        }
    }

    /// Returns why this region yields a peer's replicas.
    fn yield_reason(&self, id: PeerId) -> Option<ReleaseReason> {
        let peer = self.peers.get(&id)?;
        if self.shutting_down {
            return Some(ReleaseReason::Shutdown);
        }
        if !self.config.adopt {
            return Some(ReleaseReason::Configured);
        }
        if !self.advertisement.has_gateway {
            return Some(ReleaseReason::NoGateway);
        }
        let blocked_max = self.config.interval * BLOCKED_INTERVALS;
        let silent_for = peer.failed_probes.map(|(since, _)| self.now.since(since));
        let is_unreachable = silent_for.is_some_and(|silent_for| silent_for >= blocked_max);
        let is_outranked =
            !peer.claim.is_adopted && (peer.claim.has_given_up || self.is_outranked(id));
        (is_unreachable || is_outranked).then_some(ReleaseReason::Unreachable)
    }

    /// Gives a claim up that an unaccounted region blocks for too long: another region may be able to account for it.
    fn expire_claim(&mut self, id: PeerId) {
        let decision = self.decide_adoption(id);
        let down = self.has_outage(id);
        let clear = down
            && self
                .other_peers(id)
                .all(|(_, other)| other.is_answering() || other.is_dead());
        let blocked_max = self.config.interval * BLOCKED_INTERVALS;
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let claim = &mut peer.claim;
        match decision {
            Some(Err(AdoptionBlocker::Unaccounted(_))) => {
                let since = *claim.blocked_since.get_or_insert(now);
                claim.has_given_up |= now.since(since) >= blocked_max;
            }
            _ => claim.blocked_since = None,
        }
        if !down || clear {
            claim.has_given_up = false;
        }
    }

    /// Whether another region requests a peer's replicas and goes first.
    fn is_outranked(&self, id: PeerId) -> bool {
        let Some(peer) = self.peers.get(&id) else {
            return false;
        };
        let asks = peer.down_since.is_some()
            && self
                .other_peers(id)
                .any(|(_, other)| other.is_answering() && other.services.has_requested(&peer.name));
        asks && self
            .first_claimant(id)
            .is_some_and(|first| *first != self.config.name)
    }

    /// Whether to request a peer's replicas, because the two successor lists differ in their first region.
    fn should_request(&self, id: PeerId) -> bool {
        matches!(
            self.decide_adoption(id),
            Some(Err(AdoptionBlocker::RegionAhead(_)))
        ) && self
            .first_claimant(id)
            .is_some_and(|first| *first == self.config.name)
    }

    /// Returns the first of the regions that hear each other and claim, by their newest common list, else by name.
    fn first_claimant(&self, id: PeerId) -> Option<&RegionName> {
        let down = self.peers.get(&id)?;
        let candidates = || {
            let others = self.other_peers(id);
            others.filter(|(_, other)| {
                other.is_answering() && !other.services.has_yielded(&down.name)
            })
        };
        let held = candidates().map(|(_, other)| other.view_of(id).1);
        let version = newest_common(held.chain([down.record.record_version()]));
        let list = version
            .and_then(|version| down.record.successors.list(version))
            .unwrap_or_default();
        candidates()
            .map(|(_, other)| &other.name)
            .chain([&self.config.name])
            .min_by_key(|name| (rank(list, name), *name))
    }

    /// Every peer except `id`.
    pub(super) fn other_peers(
        &self,
        id: PeerId,
    ) -> impl Iterator<Item = (PeerId, &PeerRegion)> + Clone {
        self.peers
            .iter()
            .filter(move |(other, _)| **other != id)
            .map(|(other, peer)| (*other, peer))
    }
}
