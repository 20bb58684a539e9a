//! What falls due with time: pings, losses, witnesses, and the decisions that hang on them.

use std::sync::Arc;

use super::Regions;
use super::claims::Outage;
use super::event::{Effect, ReleaseReason};
use super::message::Liveness;
use super::records::addresses;
use isotherm_router::PeerId;

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
            self.send_ping(id);
        }
        for &id in &ids {
            self.update_liveness(id);
            self.redial(id);
            self.return_replicas(id);
        }
        self.update_claims();
        for &id in &ids {
            self.try_adopt(id);
        }
        self.update_claims();
        self.publish_successors();
    }

    /// Peers that have not answered for too long are lost, at the very moment.
    pub(super) fn mark_lost_peers(&mut self) {
        let silence_max = self.silence_max();
        for (id, peer) in &mut self.peers {
            let Some(as_of) = peer.heartbeats.as_of() else {
                continue;
            };
            if !peer.is_lost && self.now.since(as_of) >= silence_max {
                peer.is_lost = true;
                self.counters.peers_lost += 1;
                self.effects.push_back(Effect::MarkPeerLost { peer: *id });
            }
        }
    }

    /// How a peer is seen, by this service or another that is heard.
    pub(super) fn liveness_of(&self, id: PeerId) -> Liveness {
        let Some(peer) = self.peers.get(&id) else {
            return Liveness::Silent;
        };
        let own = peer.liveness(self.now, self.silence_max());
        if !own.is_silent() {
            return own;
        }
        let others = self.peers.iter().filter(|(other, _)| **other != id);
        let mut sights = others
            .filter(|(_, other)| other.is_answering())
            .map(|(_, other)| other.view_of(id).0)
            .filter(|sight| !sight.is_silent());
        let first = sights.next().unwrap_or_default();
        if first.is_up() {
            return first;
        }
        sights.find(|sight| sight.is_up()).unwrap_or(first)
    }

    /// Takes in how a peer is seen now, and asks its replicas as long as it is down.
    fn update_liveness(&mut self, id: PeerId) {
        let seen = self.liveness_of(id);
        let (now, silence_max) = (self.now, self.silence_max());
        let voice_max = self.config.interval * VOICE_INTERVALS;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.services.remove_silent(voice_max);
        if peer.is_dead() && !seen.is_silent() {
            peer.on_contact(now);
        }
        if seen.is_up() {
            peer.up_since = peer.up_since.or(Some(now));
            peer.down_since = None;
        } else {
            peer.down_since = peer.down_since.or(Some(now));
            peer.up_since = None;
        }
        let down_for = peer.down_since.map(|since| now.since(since));
        let down = down_for.is_some_and(|down_for| down_for >= silence_max)
            || (peer.is_lost && seen.is_silent());
        if down && peer.probe_offset.is_none() {
            self.probe_replicas(id, 0);
        } else if seen.is_up() && peer.probe_offset.is_some() {
            peer.probe_offset = None;
            peer.last_probe = None;
            peer.failed_probes = None;
            self.effects.push_back(Effect::StopProbing { peer: id });
        }
    }

    /// Has some replicas of a peer asked: those that begin at this place of its record.
    pub(super) fn probe_replicas(&mut self, id: PeerId, from: usize) {
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
        peer.probe_offset = Some(from);
        self.effects.push_back(Effect::ProbeReplicas {
            peer: id,
            addresses: chosen,
        });
    }

    /// Asks other replicas when these do not answer: they may be the ones that are gone.
    pub(super) fn rotate_probes(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get(&id) else {
            return;
        };
        let due = |(_, times): (_, u32)| times > 0 && times.is_multiple_of(WITNESS_FAILURES);
        if let Some(from) = peer.probe_offset
            && peer.failed_probes.is_some_and(due)
            && addresses(&peer.record.pools).count() > WITNESSES
        {
            self.probe_replicas(id, from + WITNESSES);
        }
    }

    /// A link that is up and silent may be a dead one: only a new one tells. And a proof needs attempts, so the pause after
    /// a failed one is cut short; one that goes on is left alone, because only its end tells anything.
    fn redial(&mut self, id: PeerId) {
        let (now, silence_max) = (self.now, self.silence_max());
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let stalled = !peer.is_answering() && peer.heartbeats.is_up_for(now, silence_max);
        let pursued = peer.has_dial_failed && peer.death_proof.needs_dials();
        if stalled {
            peer.heartbeats.on_link_down();
        }
        if stalled || pursued {
            peer.has_dial_failed = false;
            self.effects.push_back(Effect::Redial { peer: id });
        }
    }

    /// Gives the replicas of a region back that has been well for long enough.
    fn return_replicas(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get(&id) else {
            return;
        };
        let well_for = peer.up_since.map(|since| self.now.since(since));
        if peer.claim.is_adopted && well_for.is_some_and(|well| well >= self.config.return_after) {
            self.release(id, ReleaseReason::OwnerRecovered);
        }
    }

    /// How a peer is down, if it is: for long enough to be adopted.
    pub(super) fn outage_of(&self, id: PeerId) -> Option<Outage> {
        let peer = self.peers.get(&id)?;
        let down_for = peer.down_since.map(|since| self.now.since(since))?;
        match self.liveness_of(id) {
            Liveness::Silent => peer.is_dead().then_some(Outage::ServiceDead),
            Liveness::Alive {
                has_gateway: false, ..
            } if down_for >= self.silence_max() => Some(Outage::NoGateway),
            Liveness::Alive { .. } => None,
        }
    }
}
