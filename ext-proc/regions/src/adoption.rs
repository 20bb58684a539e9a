//! Adoption: the one place that decides it, and the one that ends it.
//!
//! The rule, for the replicas of a region that is down. Every *other* region must be accounted for, in one of three ways:
//! - it is dead: proved by witnesses (`proof`), or declared lost by the operator;
//! - it has answered a ping of mine in which I stood for these replicas, it did not hold them, and I am ahead of it in
//!   both lists of heirs;
//! - it has answered such a ping, did not hold them, and yields them.
//!
//! `ALGORITHM.md`, "Recovery", proves that no two regions ever adopt the same replica by it.

use super::claims::Outage;
use super::event::{Effect, ReleaseReason};
use super::message::RegionName;
use super::peer::PeerRegion;
use super::{AdoptionBlocker, Regions};
use isotherm_router::PeerId;

/// Whether this region adopts a peer's replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AdoptionDecision {
    /// It holds them.
    AlreadyAdopted,
    /// Nothing is wrong with the region.
    NotDown,
    /// It may adopt them now.
    Allowed,
    /// The region is down, and something is in the way.
    Blocked(AdoptionBlocker),
}

impl Regions {
    /// Whether this region may adopt a peer's replicas now, or why not.
    pub(super) fn decide_adoption(&self, id: PeerId) -> AdoptionDecision {
        let Some(peer) = self.peers.get(&id) else {
            return AdoptionDecision::NotDown;
        };
        if peer.claim.is_adopted {
            return AdoptionDecision::AlreadyAdopted;
        }
        if peer.down_since.is_none() {
            return AdoptionDecision::NotDown;
        }
        match self.adoption_blocker(id, peer) {
            Some(blocked) => AdoptionDecision::Blocked(blocked),
            None => AdoptionDecision::Allowed,
        }
    }

    fn adoption_blocker(&self, id: PeerId, peer: &PeerRegion) -> Option<AdoptionBlocker> {
        if !self.config.adopt || self.shutting_down {
            return Some(AdoptionBlocker::Disabled);
        }
        if !self.advertisement.has_gateway {
            return Some(AdoptionBlocker::NoGateway);
        }
        if peer.record.pools.is_empty() {
            return Some(AdoptionBlocker::NoRecord);
        }
        match self.outage_of(id) {
            Some(Outage::ServiceDead | Outage::NoGateway) => {}
            None => return Some(AdoptionBlocker::NotProvedDead),
        }
        if !peer.has_reachable_replicas(self.now, self.silence_max()) {
            return Some(AdoptionBlocker::ReplicasUnreachable);
        }
        let stranger = peer
            .record
            .successors
            .regions()
            .find(|heir| !self.is_configured(heir));
        if let Some(stranger) = stranger {
            return Some(AdoptionBlocker::Unaccounted(stranger.clone()));
        }
        let Some(since) = peer.claim.claimed_since_seq else {
            return Some(AdoptionBlocker::Yielded);
        };
        self.other_peers(id)
            .find_map(|(_, other)| self.region_blocker(id, peer, since, other))
    }

    /// Why another region is not accounted for, if it is not.
    fn region_blocker(
        &self,
        id: PeerId,
        down: &PeerRegion,
        since: u64,
        other: &PeerRegion,
    ) -> Option<AdoptionBlocker> {
        if other.services.has_adopted(&down.name) {
            return Some(AdoptionBlocker::AdoptedBy(other.name.clone()));
        }
        if other.is_dead() {
            return None;
        }
        if other.heartbeats.newest_reply() < since {
            return Some(AdoptionBlocker::Unaccounted(other.name.clone()));
        }
        let heirs = &down.record.successors;
        // Lists that are further apart may have nothing in common. It happens only to one that was declared lost.
        let near = other.successor_version_of(id).abs_diff(heirs.version) <= 1;
        let ahead = near && heirs.is_ahead(&self.config.name, &other.name);
        if ahead || other.services.has_yielded(&down.name) {
            return None;
        }
        Some(if other.is_answering() {
            AdoptionBlocker::RegionAhead(other.name.clone())
        } else {
            AdoptionBlocker::Unaccounted(other.name.clone())
        })
    }

    fn is_configured(&self, region: &RegionName) -> bool {
        *region == self.config.name || self.names.contains_key(region)
    }

    /// Adopts a peer's replicas, if it may.
    pub(super) fn try_adopt(&mut self, id: PeerId) {
        if self.decide_adoption(id) != AdoptionDecision::Allowed {
            return;
        }
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.claim.is_adopted = true;
        self.counters.adoptions += 1;
        self.effects.push_back(Effect::Adopt {
            peer: id,
            pools: peer.record.pools.clone(),
        });
    }

    /// Gives a peer's replicas back, if this region holds them.
    pub(super) fn release(&mut self, id: PeerId, why: ReleaseReason) {
        if let Some(peer) = self.peers.get_mut(&id)
            && peer.claim.is_adopted
        {
            peer.claim.is_adopted = false;
            self.effects.push_back(Effect::Release {
                peer: id,
                reason: why,
            });
        }
    }

    /// Another region says that it holds what this one holds. The rule forbids it; should the network have broken what the
    /// rule relies on, only one that is ahead in both lists keeps them, and that is not both.
    pub(super) fn resolve_conflict(&mut self, held: PeerId, by: PeerId) {
        let (Some(peer), Some(rival)) = (self.peers.get(&held), self.peers.get(&by)) else {
            return;
        };
        if !peer.claim.is_adopted {
            return;
        }
        self.counters.adoption_conflicts += 1;
        if !peer
            .record
            .successors
            .is_ahead(&self.config.name, &rival.name)
        {
            self.release(held, ReleaseReason::Conflict);
            self.update_claims();
        }
    }

    /// This service stood still, and was perhaps taken for dead: what it held may be another's by now. What it believed
    /// of others is as old as its sleep.
    pub(super) fn on_suspension(&mut self) {
        self.counters.suspensions += 1;
        let ids: Vec<PeerId> = self.peers.keys().copied().collect();
        for id in ids {
            self.release(id, ReleaseReason::Suspended);
            let (now, seq) = (self.now, self.seq);
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.death_proof.reset(now);
                peer.last_probe = None;
                peer.failed_probes = None;
                peer.up_since = None;
                peer.claim.blocked_since = None;
                if peer.claim.claimed_since_seq.is_some() {
                    peer.claim.claimed_since_seq = Some(seq);
                }
            }
        }
        self.update_claims();
    }
}
