//! Handlers of links, messages, probe results and the operator's declarations.

use std::sync::Arc;

use super::event::{Effect, LinkFailure};
use super::message::{Advertisement, Heartbeat, Ping, RecordVersion, RegionRecord, Session};
use super::{PROOF_INTERVALS, Regions, records};
use isotherm_router::{PeerId, Time};

impl Regions {
    /// Handles a link that came up, which proves that the peer's service runs.
    pub(super) fn on_link_up(&mut self, id: PeerId, session: Session) {
        let now = self.now;
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.link_failure = None;
            peer.has_dial_failed = false;
            peer.heartbeats.on_link_up(session, now);
            peer.on_contact(now);
            self.send_ping(id);
        }
    }

    pub(super) fn on_link_down(&mut self, id: PeerId, failure: LinkFailure, dial_started: Time) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.heartbeats.on_link_down();
        peer.link_failure = Some(failure);
        peer.has_dial_failed = true;
        match failure {
            LinkFailure::Unreachable => peer.death_proof.on_dial_failed(dial_started, now),
            LinkFailure::Refused => peer.on_contact(now),
        }
    }

    /// Sends a ping if the link is up.
    pub(super) fn send_ping(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let Some(session) = peer.heartbeats.session() else {
            return;
        };
        peer.heartbeats.on_ping_sent(self.seq, self.now);
        let ping = Ping {
            session,
            seq: self.seq,
            record_version: peer.record.record_version(),
            advertisement: self.advertisement.clone(),
        };
        self.seq += 1;
        self.effects.push_back(Effect::Ping(id, ping));
    }

    pub(super) fn on_heartbeat(&mut self, id: PeerId, heartbeat: Heartbeat) {
        let (now, age_max) = (self.now, self.silence_max());
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let accepted =
            peer.heartbeats
                .on_reply(heartbeat.session, heartbeat.ping_seq, now, age_max);
        let Some(as_of) = accepted else {
            self.counters.heartbeats_rejected += 1;
            return;
        };
        self.counters.heartbeats += 1;
        peer.is_lost = false;
        if peer.software_version.as_ref() != Some(&heartbeat.version) {
            peer.software_version = Some(heartbeat.version);
        }
        peer.views.clear();
        let mut own_version = None;
        for view in heartbeat.views {
            if let Some(of) = self.names.get(&view.region) {
                peer.views.push((*of, view.liveness, view.record_version));
            } else if view.region == self.config.name {
                own_version = Some(view.record_version);
            }
        }
        peer.views.sort_unstable_by_key(|(of, _, _)| *of);
        let round_trip = peer.heartbeats.round_trip.unwrap_or_default();
        self.effects.push_back(Effect::UpdatePeer {
            peer: id,
            pools: heartbeat.pools,
            as_of,
            round_trip,
        });
        self.on_advertisement(id, &heartbeat.advertisement, own_version);
    }

    /// Handles a ping. Returns `None` for an unknown peer.
    pub(super) fn on_ping(&mut self, id: PeerId, ping: &Ping) -> Option<()> {
        self.peers.get(&id)?;
        self.on_advertisement(id, &ping.advertisement, Some(ping.record_version));
        Some(())
    }

    /// Handles the advertisement of a ping or a heartbeat; `own_version` is the sender's version of this region's record.
    fn on_advertisement(
        &mut self,
        id: PeerId,
        advertisement: &Advertisement,
        own_version: Option<RecordVersion>,
    ) {
        let now = self.now;
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.on_contact(now);
            peer.services
                .on_advertisement(advertisement, own_version, now);
        }
        for region in &advertisement.adopted {
            if let Some(&owner) = self.names.get(region) {
                self.resolve_conflict(owner, id);
            }
        }
    }

    pub(super) fn on_record(&mut self, id: PeerId, update: &RegionRecord) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        if update.region != peer.name || !records::is_within_limits(update) {
            self.counters.records_rejected += 1;
            return;
        }
        let Some(record) = records::merge(&peer.record, update) else {
            return;
        };
        self.counters.records += 1;
        let has_new_replicas = record.version != peer.record.version;
        peer.record = Arc::new(record);
        self.effects
            .push_back(Effect::StoreRecord(peer.record.clone()));
        if has_new_replicas && peer.claim.is_adopted {
            self.effects
                .push_back(Effect::Adopt(id, peer.record.pools.clone()));
        }
        if has_new_replicas && peer.probe_offset.is_some() {
            self.probe_replicas(id, 0);
        }
    }

    pub(super) fn on_replicas_probed(&mut self, id: PeerId, sent: Time, any_answered: bool) {
        let now = self.now;
        let gap_max = self.silence_max();
        let proof_min = self.config.interval * PROOF_INTERVALS;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        if peer.probe_offset.is_none() {
            return;
        }
        if peer.last_probe.is_none_or(|(last, _)| sent >= last) {
            peer.last_probe = Some((sent, any_answered));
        }
        if any_answered {
            peer.failed_probes = None;
        } else {
            let (since, count) = peer.failed_probes.unwrap_or((now, 0));
            peer.failed_probes = Some((since, count.saturating_add(1)));
        }
        peer.death_proof.on_probe(sent, any_answered, now, gap_max);
        if peer.death_proof.is_complete(now, proof_min)
            && !peer.death_proof.is_proved
            && self.liveness_of(id).is_silent()
            && let Some(peer) = self.peers.get_mut(&id)
        {
            peer.death_proof.is_proved = true;
            peer.services.clear();
        }
        self.rotate_probes(id);
    }

    /// Handles the operator's declaration, or its revocation. A region that is heard cannot be declared lost.
    pub(super) fn on_declared_lost(&mut self, id: PeerId, is_lost: bool) {
        if self.liveness_of(id).is_silent()
            && let Some(peer) = self.peers.get_mut(&id)
        {
            peer.is_declared_lost = is_lost;
            if is_lost {
                peer.services.clear();
            }
        }
    }
}
