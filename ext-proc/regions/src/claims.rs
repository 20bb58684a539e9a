//! Where this region stands: whose replicas it would adopt, and whose it leaves to others.
//!
//! RegionState is the rule: a region that stands and is ahead of another in both lists needs no further word from it, so it may
//! adopt also when the other one is cut off. Yielding is said aloud, and to stand again means to ask everybody again.

use super::adoption::AdoptionDecision;
use super::event::ReleaseReason;
use super::message::RegionName;
use super::records::{newest_common, rank};
use super::{AdoptionBlocker, PATIENCE_INTERVALS, Regions};
use isotherm_router::PeerId;

/// How a region is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outage {
    /// Its service is proved not to run, or declared lost.
    ServiceDead,
    /// Its service says that it has no gateway.
    NoGateway,
}

impl Regions {
    /// Works out anew where this region stands, and gives back what it may not hold.
    pub(super) fn update_claims(&mut self) {
        let ids: Vec<PeerId> = self.peers.keys().copied().collect();
        for &id in &ids {
            self.expire_claim(id);
            let leaves = self.yield_reason(id);
            let asks = leaves.is_none() && self.should_request(id);
            let seq = self.seq;
            let Some(peer) = self.peers.get_mut(&id) else {
                continue;
            };
            peer.claim.is_requested = asks;
            match leaves {
                Some(why) => {
                    peer.claim.claimed_since_seq = None;
                    self.release(id, why);
                }
                None => {
                    peer.claim.claimed_since_seq = peer.claim.claimed_since_seq.or(Some(seq));
                }
            }
        }
        self.update_advertisement();
    }

    /// Puts into words where this region stands.
    fn update_advertisement(&mut self) {
        let names = |wanted: fn(&super::peer::Claim) -> bool| {
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

    /// Why this region leaves a peer's replicas to others, if it does.
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
        let patience = self.config.interval * PATIENCE_INTERVALS;
        let silent_for = peer.failed_probes.map(|(since, _)| self.now.since(since));
        let unreachable = silent_for.is_some_and(|silent_for| silent_for >= patience);
        let gives_way =
            !peer.claim.is_adopted && (peer.claim.has_given_up || self.is_outranked(id));
        (unreachable || gives_way).then_some(ReleaseReason::Unreachable)
    }

    /// A region that cannot rule somebody out leaves the field to one that perhaps can.
    fn expire_claim(&mut self, id: PeerId) {
        let verdict = self.decide_adoption(id);
        let down = self.outage_of(id).is_some();
        let clear = down
            && self
                .other_peers(id)
                .all(|(_, other)| other.is_answering() || other.is_dead());
        let patience = self.config.interval * PATIENCE_INTERVALS;
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let claim = &mut peer.claim;
        match verdict {
            AdoptionDecision::Blocked(AdoptionBlocker::Unaccounted(_)) => {
                let since = *claim.blocked_since.get_or_insert(now);
                claim.has_given_up |= now.since(since) >= patience;
            }
            _ => claim.blocked_since = None,
        }
        if !down || clear {
            claim.has_given_up = false;
        }
    }

    /// Whether another one asks for a peer's replicas, and goes first.
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

    /// Whether to ask the others for a peer's replicas: the lists do not put this region first, nor anybody else.
    fn should_request(&self, id: PeerId) -> bool {
        matches!(
            self.decide_adoption(id),
            AdoptionDecision::Blocked(AdoptionBlocker::RegionAhead(_))
        ) && self
            .first_claimant(id)
            .is_some_and(|first| *first == self.config.name)
    }

    /// Who goes first among those that hear each other and stand: by the newest list that all of them have, else by name.
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

    /// Every region but this one and that one.
    pub(super) fn other_peers(
        &self,
        id: PeerId,
    ) -> impl Iterator<Item = (PeerId, &super::peer::PeerRegion)> + Clone {
        self.peers
            .iter()
            .filter(move |(other, _)| **other != id)
            .map(|(other, peer)| (*other, peer))
    }
}
