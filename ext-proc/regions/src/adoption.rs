//! Adoption and release of a dead region's replicas.
//!
//! `docs/design/recovery.md` has the rule, and proves that no two regions adopt the same replica.

use super::Regions;
use super::event::{AdoptionBlocker, Effect, ReleaseReason};
use super::message::RegionName;
use super::peer::PeerRegion;
use isotherm_router::PeerId;

impl Regions {
    /// Whether this region may adopt a peer's replicas; `None` while the peer is up, or its replicas are adopted.
    pub(super) fn decide_adoption(&self, id: PeerId) -> Option<Result<(), AdoptionBlocker>> {
        let peer = self.peers.get(&id)?;
        let is_needed = !peer.claim.is_adopted && peer.down_since.is_some();
        is_needed.then(|| self.adoption_blocker(id, peer).map_or(Ok(()), Err))
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
        if !self.has_outage(id) {
            return Some(AdoptionBlocker::NotProvedDead);
        }
        if !peer.has_reachable_replicas(self.now, self.silence_max()) {
            return Some(AdoptionBlocker::ReplicasUnreachable);
        }
        let mut successors = peer.record.successors.regions();
        if let Some(unknown) = successors.find(|region| !self.is_configured(region)) {
            return Some(AdoptionBlocker::Unaccounted(unknown.clone()));
        }
        let Some(since) = peer.claim.claimed_since_seq else {
            return Some(AdoptionBlocker::Yielded);
        };
        self.other_peers(id)
            .find_map(|(_, other)| self.region_blocker(id, peer, since, other))
    }

    /// Returns how `other` prevents the adoption of `down`.
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
        if other.heartbeats.newest_reply < since {
            return Some(AdoptionBlocker::Unaccounted(other.name.clone()));
        }
        let successors = &down.record.successors;
        // Lists that are further apart may have nothing in common. That follows only a declaration by the operator.
        let has_common_list = other.successor_version_of(id).abs_diff(successors.version) <= 1;
        let is_ahead = has_common_list && successors.is_ahead(&self.config.name, &other.name);
        if is_ahead || other.services.has_yielded(&down.name) {
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

    /// Adopts a peer's replicas if the rule allows it.
    pub(super) fn try_adopt(&mut self, id: PeerId) {
        if self.decide_adoption(id) != Some(Ok(())) {
            return;
        }
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.claim.is_adopted = true;
        self.counters.adoptions += 1;
        self.effects
            .push_back(Effect::Adopt(id, peer.record.pools.clone()));
    }

    /// Releases a peer's replicas if this region has adopted them.
    pub(super) fn release(&mut self, id: PeerId, reason: ReleaseReason) {
        if let Some(peer) = self.peers.get_mut(&id)
            && peer.claim.is_adopted
        {
            peer.claim.is_adopted = false;
            self.effects.push_back(Effect::Release(id, reason));
        }
    }

    /// Handles a report of `rival` that it has adopted replicas of `owner`. If this region has adopted them too, the network
    /// broke the assumption of the rule, and only a region that is ahead in both lists keeps them.
    pub(super) fn resolve_conflict(&mut self, owner: PeerId, rival: PeerId) {
        let (Some(peer), Some(rival)) = (self.peers.get(&owner), self.peers.get(&rival)) else {
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
            self.release(owner, ReleaseReason::Conflict);
            self.update_claims();
        }
    }

    /// Handles a suspension of this service, in which other regions may have proved its death and adopted the same replicas.
    /// Its knowledge of other regions is as old as the suspension.
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
