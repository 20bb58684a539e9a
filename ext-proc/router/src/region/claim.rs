//! Where this region stands: whose replicas it would adopt, and whose it leaves to others.
//!
//! RegionState is the rule: a region that stands and is ahead of another in both lists needs no further word from it, so it may
//! adopt also when the other one is cut off. Yielding is said aloud, and to stand again means to ask everybody again.

use super::adopt::Verdict;
use super::event::Released;
use super::message::RegionName;
use super::records::{common, place};
use super::{Blocked, PATIENCE_INTERVALS, Regions};
use crate::PeerId;

/// How a region is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Down {
    /// Its service is proved not to run, or declared lost.
    Dead,
    /// Its service says that it has no gateway.
    NoGateway,
}

impl Regions {
    /// Works out anew where this region stands, and gives back what it may not hold.
    pub(super) fn settle(&mut self) {
        let ids: Vec<PeerId> = self.peers.keys().copied().collect();
        for &id in &ids {
            self.lose_patience(id);
            let leaves = self.leaves(id);
            let asks = leaves.is_none() && self.should_ask(id);
            let seq = self.seq;
            let Some(peer) = self.peers.get_mut(&id) else {
                continue;
            };
            peer.claim.asks = asks;
            match leaves {
                Some(why) => {
                    peer.claim.stands_since = None;
                    self.release(id, why);
                }
                None => {
                    peer.claim.stands_since = peer.claim.stands_since.or(Some(seq));
                }
            }
        }
        self.say();
    }

    /// Puts into words where this region stands.
    fn say(&mut self) {
        let names = |wanted: fn(&super::peer::Claim) -> bool| {
            let peers = self.peers.values().filter(move |peer| wanted(&peer.claim));
            peers.map(|peer| peer.name.clone())
        };
        let holds = names(|claim| claim.holds).chain(self.siblings_hold.iter().cloned());
        let (holds, yields, asks) = (
            holds.collect(),
            names(|claim| claim.stands_since.is_none()).collect(),
            names(|claim| claim.asks).collect(),
        );
        if (&self.stance.holds, &self.stance.yields, &self.stance.asks) != (&holds, &yields, &asks)
        {
            self.stance.holds = holds;
            self.stance.yields = yields;
            self.stance.asks = asks;
            self.stance.number += 1;
        }
    }

    /// Why this region leaves a peer's replicas to others, if it does.
    fn leaves(&self, id: PeerId) -> Option<Released> {
        let peer = self.peers.get(&id)?;
        if self.shutting_down {
            return Some(Released::Shutdown);
        }
        if !self.config.adopt {
            return Some(Released::Configured);
        }
        if !self.stance.gateway {
            return Some(Released::NoGateway);
        }
        let patience = self.config.interval * PATIENCE_INTERVALS;
        let silent_for = peer.witness_silent.map(|(since, _)| self.now.since(since));
        let unreachable = silent_for.is_some_and(|silent_for| silent_for >= patience);
        let gives_way = !peer.claim.holds && (peer.claim.gave_up || self.gives_way(id));
        (unreachable || gives_way).then_some(Released::Unreachable)
    }

    /// A region that cannot rule somebody out leaves the field to one that perhaps can.
    fn lose_patience(&mut self, id: PeerId) {
        let verdict = self.verdict(id);
        let down = self.down(id).is_some();
        let clear = down
            && self
                .others(id)
                .all(|(_, other)| other.answers() || other.dead());
        let patience = self.config.interval * PATIENCE_INTERVALS;
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let claim = &mut peer.claim;
        match verdict {
            Verdict::Blocked(Blocked::Unknown(_)) => {
                let since = *claim.stuck_since.get_or_insert(now);
                claim.gave_up |= now.since(since) >= patience;
            }
            _ => claim.stuck_since = None,
        }
        if !down || clear {
            claim.gave_up = false;
        }
    }

    /// Whether another one asks for a peer's replicas, and goes first.
    fn gives_way(&self, id: PeerId) -> bool {
        let Some(peer) = self.peers.get(&id) else {
            return false;
        };
        let asks = peer.down_since.is_some()
            && self
                .others(id)
                .any(|(_, other)| other.answers() && other.voices.asks(&peer.name));
        asks && self
            .first(id)
            .is_some_and(|first| *first != self.config.name)
    }

    /// Whether to ask the others for a peer's replicas: the lists do not put this region first, nor anybody else.
    fn should_ask(&self, id: PeerId) -> bool {
        matches!(self.verdict(id), Verdict::Blocked(Blocked::First(_)))
            && self
                .first(id)
                .is_some_and(|first| *first == self.config.name)
    }

    /// Who goes first among those that hear each other and stand: by the newest list that all of them have, else by name.
    fn first(&self, id: PeerId) -> Option<&RegionName> {
        let down = self.peers.get(&id)?;
        let candidates = || {
            let others = self.others(id);
            others.filter(|(_, other)| other.answers() && !other.voices.yields(&down.name))
        };
        let held = candidates().map(|(_, other)| other.view(id).1);
        let version = common(held.chain([down.record.held()]));
        let list = version
            .and_then(|version| down.record.heirs.list(version))
            .unwrap_or_default();
        candidates()
            .map(|(_, other)| &other.name)
            .chain([&self.config.name])
            .min_by_key(|name| (place(list, name), *name))
    }

    /// Every region but this one and that one.
    pub(super) fn others(
        &self,
        id: PeerId,
    ) -> impl Iterator<Item = (PeerId, &super::peer::Peer)> + Clone {
        self.peers
            .iter()
            .filter(move |(other, _)| **other != id)
            .map(|(other, peer)| (*other, peer))
    }
}
