//! What falls due with time: pings, losses, witnesses, and the decisions that hang on them.

use std::sync::Arc;

use super::Regions;
use super::claim::Down;
use super::event::{Effect, Released};
use super::message::Sight;
use super::records::addresses;
use crate::PeerId;

/// Replicas that are asked as witnesses, of one region.
const WITNESSES: usize = 3;
/// Failures in a row after which other replicas are asked.
const WITNESS_FAILURES: u32 = 3;
/// Intervals of silence after which one of a region's services is forgotten while another one speaks.
const VOICE_INTERVALS: u32 = 10;

impl Regions {
    /// Once an interval.
    pub(super) fn tick(&mut self) {
        let ids: Vec<PeerId> = self.peers.keys().copied().collect();
        for &id in &ids {
            self.ping(id);
        }
        for &id in &ids {
            self.look(id);
            self.redial(id);
            self.give_back(id);
        }
        self.settle();
        for &id in &ids {
            self.try_adopt(id);
        }
        self.settle();
        self.publish();
    }

    /// Peers that have not answered for too long are lost, at the very moment.
    pub(super) fn find_lost(&mut self) {
        let silence_max = self.silence_max();
        for (id, peer) in &mut self.peers {
            let Some(as_of) = peer.pulse.as_of() else {
                continue;
            };
            if !peer.lost && self.now.since(as_of) >= silence_max {
                peer.lost = true;
                self.counters.lost += 1;
                self.effects.push_back(Effect::Lost { peer: *id });
            }
        }
    }

    /// How a peer is seen, by this service or another that is heard.
    pub(super) fn seen(&self, id: PeerId) -> Sight {
        let Some(peer) = self.peers.get(&id) else {
            return Sight::Silent;
        };
        let own = peer.sight(self.now, self.silence_max());
        if !own.is_silent() {
            return own;
        }
        let others = self.peers.iter().filter(|(other, _)| **other != id);
        let mut sights = others
            .filter(|(_, other)| other.answers())
            .map(|(_, other)| other.view(id).0)
            .filter(|sight| !sight.is_silent());
        let first = sights.next().unwrap_or_default();
        if first.is_up() {
            return first;
        }
        sights.find(|sight| sight.is_up()).unwrap_or(first)
    }

    /// Takes in how a peer is seen now, and asks its replicas as long as it is down.
    fn look(&mut self, id: PeerId) {
        let seen = self.seen(id);
        let (now, silence_max) = (self.now, self.silence_max());
        let voice_max = self.config.interval * VOICE_INTERVALS;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.voices.expire(voice_max);
        if peer.dead() && !seen.is_silent() {
            peer.contact(now);
        }
        if seen.is_up() {
            peer.well_since = peer.well_since.or(Some(now));
            peer.down_since = None;
        } else {
            peer.down_since = peer.down_since.or(Some(now));
            peer.well_since = None;
        }
        let down_for = peer.down_since.map(|since| now.since(since));
        let down = down_for.is_some_and(|down_for| down_for >= silence_max)
            || (peer.lost && seen.is_silent());
        if down && peer.watched.is_none() {
            self.watch(id, 0);
        } else if seen.is_up() && peer.watched.is_some() {
            peer.watched = None;
            peer.witness = None;
            peer.witness_silent = None;
            self.effects.push_back(Effect::Unwatch { peer: id });
        }
    }

    /// Has some replicas of a peer asked: those that begin at this place of its record.
    pub(super) fn watch(&mut self, id: PeerId, from: usize) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let total = addresses(&peer.record.pools).count();
        if total == 0 {
            return;
        }
        let from = if from < total { from } else { 0 };
        let all = addresses(&peer.record.pools);
        let chosen: Vec<Arc<str>> = all.skip(from).take(WITNESSES).cloned().collect();
        peer.watched = Some(from);
        self.effects.push_back(Effect::Watch {
            peer: id,
            addresses: chosen,
        });
    }

    /// Asks other replicas when these do not answer: they may be the ones that are gone.
    pub(super) fn rotate_witnesses(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get(&id) else {
            return;
        };
        let due = |(_, times): (_, u32)| times > 0 && times.is_multiple_of(WITNESS_FAILURES);
        if let Some(from) = peer.watched
            && peer.witness_silent.is_some_and(due)
            && addresses(&peer.record.pools).count() > WITNESSES
        {
            self.watch(id, from + WITNESSES);
        }
    }

    /// A link that is up and silent may be a dead one: only a new one tells. And a proof needs attempts, so the pause after
    /// a failed one is cut short; one that goes on is left alone, because only its end tells anything.
    fn redial(&mut self, id: PeerId) {
        let (now, silence_max) = (self.now, self.silence_max());
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let stalled = !peer.answers() && peer.pulse.up_for(now, silence_max);
        let pursued = peer.attempt_failed && peer.proof.wants_attempts();
        if stalled {
            peer.pulse.down();
        }
        if stalled || pursued {
            peer.attempt_failed = false;
            self.effects.push_back(Effect::Redial { peer: id });
        }
    }

    /// Gives the replicas of a region back that has been well for long enough.
    fn give_back(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get(&id) else {
            return;
        };
        let well_for = peer.well_since.map(|since| self.now.since(since));
        if peer.claim.holds && well_for.is_some_and(|well| well >= self.config.give_back_after) {
            self.release(id, Released::OwnerWell);
        }
    }

    /// How a peer is down, if it is: for long enough to be adopted.
    pub(super) fn down(&self, id: PeerId) -> Option<Down> {
        let peer = self.peers.get(&id)?;
        let down_for = peer.down_since.map(|since| self.now.since(since))?;
        match self.seen(id) {
            Sight::Silent => peer.dead().then_some(Down::Dead),
            Sight::Alive { gateway: false, .. } if down_for >= self.silence_max() => {
                Some(Down::NoGateway)
            }
            Sight::Alive { .. } => None,
        }
    }
}
