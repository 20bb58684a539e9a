//! What comes in on the links, and from the witnesses.

use super::event::{Broken, Effect};
use super::message::{Heartbeat, Held, Ping, Record, Session, Stance};
use super::{ROW_INTERVALS, Regions, records};
use crate::{PeerId, Time};

impl Regions {
    /// A link that is up proves that the other side lives, whatever it says next.
    pub(super) fn link_up(&mut self, id: PeerId, session: Session) {
        let now = self.now;
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.broken = None;
            peer.attempt_failed = false;
            peer.pulse.up(session, now);
            peer.contact(now);
            self.ping(id);
        }
    }

    pub(super) fn link_down(&mut self, id: PeerId, why: Broken, began: Time) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.pulse.down();
        peer.broken = Some(why);
        peer.attempt_failed = true;
        match why {
            Broken::Unreachable => peer.proof.failed(began, now),
            Broken::Refused => peer.contact(now),
        }
    }

    /// Asks a peer, if the link to it is up.
    pub(super) fn ping(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let Some(session) = peer.pulse.session() else {
            return;
        };
        peer.pulse.ask(self.seq, self.now);
        let ping = Ping {
            session,
            seq: self.seq,
            has: peer.record.held(),
            stance: self.stance.clone(),
        };
        self.seq += 1;
        self.effects.push_back(Effect::Ping { peer: id, ping });
    }

    /// A peer answered.
    pub(super) fn heartbeat(&mut self, id: PeerId, heartbeat: Heartbeat) {
        let (now, age_max) = (self.now, self.silence_max());
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let answered = peer
            .pulse
            .answer(heartbeat.session, heartbeat.answers, now, age_max);
        let Some(as_of) = answered else {
            self.counters.heartbeats_refused += 1;
            return;
        };
        self.counters.heartbeats += 1;
        peer.lost = false;
        if peer.version.as_ref() != Some(&heartbeat.version) {
            peer.version = Some(heartbeat.version);
        }
        peer.incarnation = Some(heartbeat.stance.incarnation);
        peer.views.clear();
        let mut has = None;
        for view in heartbeat.views {
            if let Some(of) = self.names.get(&view.region) {
                peer.views.push((*of, view.sight, view.has));
            } else if view.region == self.config.name {
                has = Some(view.has);
            }
        }
        peer.views.sort_unstable_by_key(|(of, _, _)| *of);
        let round_trip = peer.pulse.round_trip().unwrap_or_default();
        self.effects.push_back(Effect::Reported {
            peer: id,
            pools: heartbeat.pools,
            as_of,
            round_trip,
        });
        self.stands(id, &heartbeat.stance, has);
    }

    /// A peer asked: it lives.
    pub(super) fn asked(&mut self, id: PeerId, ping: &Ping) -> Option<()> {
        self.peers.get(&id)?;
        self.stands(id, &ping.stance, Some(ping.has));
        Some(())
    }

    /// A peer said where it stands, in a ping or an answer.
    fn stands(&mut self, id: PeerId, stance: &Stance, has: Option<Held>) {
        let now = self.now;
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.contact(now);
            peer.voices.hear(stance, has, now);
        }
        for region in &stance.holds {
            if let Some(&held) = self.names.get(region) {
                self.contested(held, id);
            }
        }
    }

    /// A peer told its record.
    pub(super) fn record(&mut self, id: PeerId, news: &Record) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        if news.region != peer.name || !records::fits(news) {
            self.counters.records_refused += 1;
            return;
        }
        let Some(record) = records::merged(&peer.record, news) else {
            return;
        };
        self.counters.records += 1;
        let members = record.version != peer.record.version;
        peer.record = std::sync::Arc::new(record);
        self.effects.push_back(Effect::Store {
            record: peer.record.clone(),
        });
        if members && peer.claim.holds {
            self.effects.push_back(Effect::Adopt {
                peer: id,
                pools: peer.record.pools.clone(),
            });
        }
        if members && peer.watched.is_some() {
            self.watch(id, 0);
        }
    }

    /// Replicas of a peer answered, or did not.
    pub(super) fn witness(&mut self, id: PeerId, sent: Time, alive: bool) {
        let now = self.now;
        let gap_max = self.silence_max();
        let row_min = self.config.interval * ROW_INTERVALS;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        if peer.watched.is_none() {
            return;
        }
        if peer.witness.is_none_or(|(last, _)| sent >= last) {
            peer.witness = Some((sent, alive));
        }
        if alive {
            peer.witness_silent = None;
        } else {
            let (since, times) = peer.witness_silent.unwrap_or((now, 0));
            peer.witness_silent = Some((since, times.saturating_add(1)));
        }
        peer.proof.witness(sent, alive, now, gap_max);
        if peer.proof.complete(now, row_min)
            && !peer.proof.proved()
            && self.seen(id).is_silent()
            && let Some(peer) = self.peers.get_mut(&id)
        {
            peer.proof.conclude();
            peer.voices.clear();
        }
        self.rotate_witnesses(id);
    }

    /// The operator says that a region is lost, or takes that back. One that answers is not lost.
    pub(super) fn declared(&mut self, id: PeerId, lost: bool) {
        if self.seen(id).is_silent()
            && let Some(peer) = self.peers.get_mut(&id)
        {
            peer.declared = lost;
            if lost {
                peer.voices.clear();
            }
        }
    }
}
