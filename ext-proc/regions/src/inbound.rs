//! What comes in on the links, and from the witnesses.

use super::event::{Effect, LinkFailure};
use super::message::{Advertisement, Heartbeat, Ping, RecordVersion, RegionRecord, Session};
use super::{ROW_INTERVALS, Regions, records};
use isotherm_router::{PeerId, Time};

impl Regions {
    /// A link that is up proves that the other side lives, whatever it says next.
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

    pub(super) fn on_link_down(&mut self, id: PeerId, why: LinkFailure, began: Time) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.heartbeats.on_link_down();
        peer.link_failure = Some(why);
        peer.has_dial_failed = true;
        match why {
            LinkFailure::Unreachable => peer.death_proof.on_dial_failed(began, now),
            LinkFailure::Refused => peer.on_contact(now),
        }
    }

    /// Asks a peer, if the link to it is up.
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
        self.effects.push_back(Effect::Ping { peer: id, ping });
    }

    /// A peer answered.
    pub(super) fn on_heartbeat(&mut self, id: PeerId, heartbeat: Heartbeat) {
        let (now, age_max) = (self.now, self.silence_max());
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let answered =
            peer.heartbeats
                .on_reply(heartbeat.session, heartbeat.ping_seq, now, age_max);
        let Some(as_of) = answered else {
            self.counters.heartbeats_rejected += 1;
            return;
        };
        self.counters.heartbeats += 1;
        peer.is_lost = false;
        if peer.software_version.as_ref() != Some(&heartbeat.version) {
            peer.software_version = Some(heartbeat.version);
        }
        peer.incarnation = Some(heartbeat.advertisement.incarnation);
        peer.views.clear();
        let mut has = None;
        for view in heartbeat.views {
            if let Some(of) = self.names.get(&view.region) {
                peer.views.push((*of, view.liveness, view.record_version));
            } else if view.region == self.config.name {
                has = Some(view.record_version);
            }
        }
        peer.views.sort_unstable_by_key(|(of, _, _)| *of);
        let round_trip = peer.heartbeats.round_trip().unwrap_or_default();
        self.effects.push_back(Effect::UpdatePeer {
            peer: id,
            pools: heartbeat.pools,
            as_of,
            round_trip,
        });
        self.on_advertisement(id, &heartbeat.advertisement, has);
    }

    /// A peer asked: it lives.
    pub(super) fn on_ping(&mut self, id: PeerId, ping: &Ping) -> Option<()> {
        self.peers.get(&id)?;
        self.on_advertisement(id, &ping.advertisement, Some(ping.record_version));
        Some(())
    }

    /// A peer said where it stands, in a ping or an answer.
    fn on_advertisement(&mut self, id: PeerId, stance: &Advertisement, has: Option<RecordVersion>) {
        let now = self.now;
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.on_contact(now);
            peer.services.on_advertisement(stance, has, now);
        }
        for region in &stance.adopted {
            if let Some(&held) = self.names.get(region) {
                self.resolve_conflict(held, id);
            }
        }
    }

    /// A peer told its record.
    pub(super) fn on_record(&mut self, id: PeerId, news: &RegionRecord) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        if news.region != peer.name || !records::is_within_limits(news) {
            self.counters.records_rejected += 1;
            return;
        }
        let Some(record) = records::merge(&peer.record, news) else {
            return;
        };
        self.counters.records += 1;
        let members = record.version != peer.record.version;
        peer.record = std::sync::Arc::new(record);
        self.effects.push_back(Effect::StoreRecord {
            record: peer.record.clone(),
        });
        if members && peer.claim.is_adopted {
            self.effects.push_back(Effect::Adopt {
                peer: id,
                pools: peer.record.pools.clone(),
            });
        }
        if members && peer.probe_offset.is_some() {
            self.probe_replicas(id, 0);
        }
    }

    /// Replicas of a peer answered, or did not.
    pub(super) fn on_replicas_probed(&mut self, id: PeerId, sent: Time, alive: bool) {
        let now = self.now;
        let gap_max = self.silence_max();
        let row_min = self.config.interval * ROW_INTERVALS;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        if peer.probe_offset.is_none() {
            return;
        }
        if peer.last_probe.is_none_or(|(last, _)| sent >= last) {
            peer.last_probe = Some((sent, alive));
        }
        if alive {
            peer.failed_probes = None;
        } else {
            let (since, times) = peer.failed_probes.unwrap_or((now, 0));
            peer.failed_probes = Some((since, times.saturating_add(1)));
        }
        peer.death_proof.on_probe(sent, alive, now, gap_max);
        if peer.death_proof.is_complete(now, row_min)
            && !peer.death_proof.is_proved()
            && self.liveness_of(id).is_silent()
            && let Some(peer) = self.peers.get_mut(&id)
        {
            peer.death_proof.confirm();
            peer.services.clear();
        }
        self.rotate_probes(id);
    }

    /// The operator says that a region is lost, or takes that back. One that answers is not lost.
    pub(super) fn on_declared_lost(&mut self, id: PeerId, lost: bool) {
        if self.liveness_of(id).is_silent()
            && let Some(peer) = self.peers.get_mut(&id)
        {
            peer.is_declared_lost = lost;
            if lost {
                peer.services.clear();
            }
        }
    }
}
