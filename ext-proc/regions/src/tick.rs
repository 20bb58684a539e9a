//! Periodic work: pings, losses, probes, and the decisions that follow from them.

use std::sync::Arc;

use super::Regions;
use super::event::{Effect, ReleaseReason};
use super::message::Liveness;
use super::records::addresses;
use isotherm_router::PeerId;

/// Replicas of one region that are probed at a time.
const PROBED_REPLICAS: usize = 3;
/// Failed rounds in a row after which other replicas are probed.
const FAILED_ROUNDS: u32 = 3;
/// Intervals of silence after which a service is forgotten while another service of its region is heard.
const FORGET_INTERVALS: u32 = 10;

impl Regions {
    /// Runs once an interval.
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

    /// Marks each peer as lost whose last heartbeat is too old.
    pub(super) fn mark_lost_peers(&mut self) {
        let silence_max = self.silence_max();
        for (id, peer) in &mut self.peers {
            let Some(as_of) = peer.heartbeats.as_of else {
                continue;
            };
            if !peer.is_lost && self.now.since(as_of) >= silence_max {
                peer.is_lost = true;
                self.counters.regions_lost += 1;
                self.effects.push_back(Effect::MarkPeerLost(*id));
            }
        }
    }

    /// Returns the liveness of a peer, as this service or another that it hears sees it.
    pub(super) fn liveness_of(&self, id: PeerId) -> Liveness {
        let Some(peer) = self.peers.get(&id) else {
            return Liveness::Silent;
        };
        let own = peer.liveness(self.now, self.silence_max());
        if !own.is_silent() {
            return own;
        }
        let others = self.peers.iter().filter(|(other, _)| **other != id);
        let mut views = others
            .filter(|(_, other)| other.is_answering())
            .map(|(_, other)| other.view_of(id).0)
            .filter(|view| !view.is_silent());
        let first = views.next().unwrap_or_default();
        if first.is_up() {
            return first;
        }
        views.find(|view| view.is_up()).unwrap_or(first)
    }

    /// Updates the times of a peer's liveness, and probes its replicas while it is down.
    fn update_liveness(&mut self, id: PeerId) {
        let liveness = self.liveness_of(id);
        let (now, silence_max) = (self.now, self.silence_max());
        let forget_after = self.config.interval * FORGET_INTERVALS;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.services.remove_silent(forget_after);
        if peer.is_dead() && !liveness.is_silent() {
            peer.on_contact(now);
        }
        if liveness.is_up() {
            peer.up_since = peer.up_since.or(Some(now));
            peer.down_since = None;
        } else {
            peer.down_since = peer.down_since.or(Some(now));
            peer.up_since = None;
        }
        let down_for = peer.down_since.map(|since| now.since(since));
        let is_down = down_for.is_some_and(|down_for| down_for >= silence_max)
            || (peer.is_lost && liveness.is_silent());
        if is_down && peer.probe_offset.is_none() {
            self.probe_replicas(id, 0);
        } else if liveness.is_up() && peer.probe_offset.is_some() {
            peer.probe_offset = None;
            peer.last_probe = None;
            peer.failed_probes = None;
            self.effects.push_back(Effect::StopProbing(id));
        }
    }

    /// Probes replicas of a peer, from an offset into its record.
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
        let addresses: Vec<Arc<str>> = all.skip(from).take(PROBED_REPLICAS).cloned().collect();
        peer.probe_offset = Some(from);
        self.effects.push_back(Effect::ProbeReplicas(id, addresses));
    }

    /// Probes other replicas when the current ones do not answer, since those may be gone.
    pub(super) fn rotate_probes(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get(&id) else {
            return;
        };
        let is_due = |(_, count): (_, u32)| count > 0 && count.is_multiple_of(FAILED_ROUNDS);
        if let Some(from) = peer.probe_offset
            && peer.failed_probes.is_some_and(is_due)
            && addresses(&peer.record.pools).count() > PROBED_REPLICAS
        {
            self.probe_replicas(id, from + PROBED_REPLICAS);
        }
    }

    /// Redials a link that is up and silent, since it may be dead, and cuts the backoff short while a death proof needs failed
    /// dials. A dial in progress continues, because only its end counts.
    fn redial(&mut self, id: PeerId) {
        let (now, silence_max) = (self.now, self.silence_max());
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let is_stalled = !peer.is_answering() && peer.heartbeats.is_up_for(now, silence_max);
        let is_needed = peer.has_dial_failed && peer.death_proof.needs_dials();
        if is_stalled {
            peer.heartbeats.on_link_down();
        }
        if is_stalled || is_needed {
            peer.has_dial_failed = false;
            self.effects.push_back(Effect::Redial(id));
        }
    }

    /// Releases the replicas of a region that has been up for long enough.
    fn return_replicas(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get(&id) else {
            return;
        };
        let up_for = peer.up_since.map(|since| self.now.since(since));
        if peer.claim.is_adopted && up_for.is_some_and(|up_for| up_for >= self.config.return_after)
        {
            self.release(id, ReleaseReason::OwnerRecovered);
        }
    }

    /// Whether a peer has been down for long enough to be adopted: its service is dead, or reports that it has no gateway.
    pub(super) fn has_outage(&self, id: PeerId) -> bool {
        let down = self
            .peers
            .get(&id)
            .and_then(|peer| Some((peer, peer.down_since?)));
        down.is_some_and(|(peer, since)| match self.liveness_of(id) {
            Liveness::Silent => peer.is_dead(),
            Liveness::Alive { has_gateway, .. } => {
                !has_gateway && self.now.since(since) >= self.silence_max()
            }
        })
    }
}
