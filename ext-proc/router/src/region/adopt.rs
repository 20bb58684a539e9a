//! Adoption: the one place that decides it, and the one that ends it.
//!
//! The rule, for the replicas of a region that is down. Every *other* region must be accounted for, in one of three ways:
//! - it is dead: proved by witnesses (`proof`), or declared lost by the operator;
//! - it has answered a ping of mine in which I stood for these replicas, it did not hold them, and I am ahead of it in
//!   both lists of heirs;
//! - it has answered such a ping, did not hold them, and yields them.
//!
//! `ALGORITHM.md`, "Recovery", proves that no two regions ever adopt the same replica by it.

use super::claim::Down;
use super::event::{Effect, Released};
use super::message::RegionName;
use super::peer::Peer;
use super::{Blocked, Regions};
use crate::PeerId;

/// Whether this region adopts a peer's replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It holds them.
    Holds,
    /// Nothing is wrong with the region.
    Well,
    /// It may adopt them now.
    Free,
    /// The region is down, and something is in the way.
    Blocked(Blocked),
}

impl Regions {
    /// Whether this region may adopt a peer's replicas now, or why not.
    pub(super) fn verdict(&self, id: PeerId) -> Verdict {
        let Some(peer) = self.peers.get(&id) else {
            return Verdict::Well;
        };
        if peer.claim.holds {
            return Verdict::Holds;
        }
        if peer.down_since.is_none() {
            return Verdict::Well;
        }
        match self.in_the_way(id, peer) {
            Some(blocked) => Verdict::Blocked(blocked),
            None => Verdict::Free,
        }
    }

    fn in_the_way(&self, id: PeerId, peer: &Peer) -> Option<Blocked> {
        if !self.config.adopt || self.shutting_down {
            return Some(Blocked::SwitchedOff);
        }
        if !self.stance.gateway {
            return Some(Blocked::NoGateway);
        }
        if peer.record.pools.is_empty() {
            return Some(Blocked::NoRecord);
        }
        match self.down(id) {
            Some(Down::Dead | Down::NoGateway) => {}
            None => return Some(Blocked::NotDead),
        }
        if !peer.reachable(self.now, self.silence_max()) {
            return Some(Blocked::ReplicasSilent);
        }
        let stranger = peer.record.heirs.everybody().find(|heir| !self.knows(heir));
        if let Some(stranger) = stranger {
            return Some(Blocked::Unknown(stranger.clone()));
        }
        let Some(since) = peer.claim.stands_since else {
            return Some(Blocked::LeftToOthers);
        };
        self.others(id)
            .find_map(|(_, other)| self.unaccounted(id, peer, since, other))
    }

    /// Why another region is not accounted for, if it is not.
    fn unaccounted(&self, id: PeerId, down: &Peer, since: u64, other: &Peer) -> Option<Blocked> {
        if other.voices.holds(&down.name) {
            return Some(Blocked::HeldBy(other.name.clone()));
        }
        if other.dead() {
            return None;
        }
        if other.pulse.answered() < since {
            return Some(Blocked::Unknown(other.name.clone()));
        }
        let heirs = &down.record.heirs;
        // Lists that are further apart may have nothing in common. It happens only to one that was declared lost.
        let near = other.view_of_heirs(id).abs_diff(heirs.version) <= 1;
        let ahead = near && heirs.ahead(&self.config.name, &other.name);
        if ahead || other.voices.yields(&down.name) {
            return None;
        }
        Some(if other.answers() {
            Blocked::First(other.name.clone())
        } else {
            Blocked::Unknown(other.name.clone())
        })
    }

    fn knows(&self, region: &RegionName) -> bool {
        *region == self.config.name || self.names.contains_key(region)
    }

    /// Adopts a peer's replicas, if it may.
    pub(super) fn try_adopt(&mut self, id: PeerId) {
        if self.verdict(id) != Verdict::Free {
            return;
        }
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.claim.holds = true;
        self.counters.adoptions += 1;
        self.effects.push_back(Effect::Adopt {
            peer: id,
            pools: peer.record.pools.clone(),
        });
    }

    /// Gives a peer's replicas back, if this region holds them.
    pub(super) fn release(&mut self, id: PeerId, why: Released) {
        if let Some(peer) = self.peers.get_mut(&id)
            && peer.claim.holds
        {
            peer.claim.holds = false;
            self.effects.push_back(Effect::Release { peer: id, why });
        }
    }

    /// Another region says that it holds what this one holds. The rule forbids it; should the network have broken what the
    /// rule relies on, only one that is ahead in both lists keeps them, and that is not both.
    pub(super) fn contested(&mut self, held: PeerId, by: PeerId) {
        let (Some(peer), Some(rival)) = (self.peers.get(&held), self.peers.get(&by)) else {
            return;
        };
        if !peer.claim.holds {
            return;
        }
        self.counters.conflicts += 1;
        if !peer.record.heirs.ahead(&self.config.name, &rival.name) {
            self.release(held, Released::Conflict);
            self.settle();
        }
    }

    /// This service stood still, and was perhaps taken for dead: what it held may be another's by now. What it believed
    /// of others is as old as its sleep.
    pub(super) fn slept(&mut self) {
        self.counters.sleeps += 1;
        let ids: Vec<PeerId> = self.peers.keys().copied().collect();
        for id in ids {
            self.release(id, Released::Slept);
            let (now, seq) = (self.now, self.seq);
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.proof.contact(now);
                peer.witness = None;
                peer.witness_silent = None;
                peer.well_since = None;
                peer.claim.stuck_since = None;
                if peer.claim.stands_since.is_some() {
                    peer.claim.stands_since = Some(seq);
                }
            }
        }
        self.settle();
    }
}
