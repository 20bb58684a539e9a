//! The regions, as one service sees them: who is heard, who is dead, and whose replicas this region adopts.
//!
//! *Sans I/O* like the [`Router`](crate::Router): [`Regions::handle`] for what comes in, [`Regions::answer`] for what a
//! peer asks, [`Regions::poll_effect`] for what goes out, [`Regions::poll_timeout`] for when to call again. The driver
//! dials, protects and keeps the links, asks replicas when told to, and moves them into and out of its pools.
//! `ALGORITHM.md`, "Recovery", has the rule and why it is safe.

mod adopt;
mod claim;
mod event;
mod hear;
mod message;
mod peer;
mod proof;
mod publish;
mod pulse;
mod records;
mod siblings;
mod status;
mod tick;
mod voices;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

pub use event::{Broken, Effect, Event, RegionsConfig, Released};
pub use message::{
    Answer, Heartbeat, Heirs, Held, Incarnation, Members, Ping, Record, RegionName, Session, Sight,
    Stance, View,
};
pub use status::{Blocked, PeerRegion, RegionState, RegionsCounters, RegionsStatus};

use crate::{PeerId, PeerReport, Time};
use peer::Peer;
use siblings::Writing;

/// Intervals without an acceptable answer after which a peer is lost.
const SILENCE_INTERVALS: u32 = 3;
/// Intervals in which this service did nothing after which others may have taken it for dead.
const SLEEP_INTERVALS: u32 = 5;
/// Intervals that the proof of a death takes at least, after the peer was last heard. A service speaks once an interval, so
/// one that stands still is not taken for dead in less than one interval fewer; by then it must know that it slept.
const ROW_INTERVALS: u32 = 7;
const _: () = assert!(
    ROW_INTERVALS - 1 > SLEEP_INTERVALS,
    "a sleeper must notice first"
);
/// Intervals after which a record is sent again to one that does not seem to have it.
const RESEND_INTERVALS: u32 = 5;
/// Intervals without an answer from a region's replicas, or with somebody unknown in the way, after which this region
/// leaves them to others.
const PATIENCE_INTERVALS: u32 = 15;

/// What one service knows of the other regions, and what it does about them.
#[derive(Debug)]
pub struct Regions {
    config: RegionsConfig,
    now: Time,
    next_tick: Time,
    /// The number of the next ping.
    seq: u64,
    stance: Stance,
    own: Arc<Record>,
    writing: Writing,
    /// When the newest list of heirs was published.
    published: Time,
    siblings_hold: BTreeSet<RegionName>,
    peers: BTreeMap<PeerId, Peer>,
    names: BTreeMap<RegionName, PeerId>,
    /// Records of regions that the configuration does not name (yet), from the last life.
    strangers: BTreeMap<RegionName, Arc<Record>>,
    shutting_down: bool,
    effects: VecDeque<Effect>,
    counters: RegionsCounters,
}

impl Regions {
    /// A service that starts. `restored`: the records that the last life was told to store, this region's own among them.
    #[must_use]
    pub fn new(
        config: RegionsConfig,
        incarnation: Incarnation,
        restored: impl IntoIterator<Item = Record>,
        now: Time,
    ) -> Self {
        let mut strangers: BTreeMap<_, _> = restored
            .into_iter()
            .filter(records::fits)
            .map(|record| (record.region.clone(), Arc::new(record)))
            .collect();
        let own = strangers
            .remove(&config.name)
            .unwrap_or_else(|| Arc::new(records::empty(config.name.clone())));
        let mut regions = Self {
            now,
            next_tick: now,
            seq: 1,
            stance: Stance {
                incarnation,
                ..Stance::default()
            },
            own,
            writing: Writing::default(),
            published: now,
            siblings_hold: BTreeSet::new(),
            peers: BTreeMap::new(),
            names: BTreeMap::new(),
            strangers,
            shutting_down: false,
            effects: VecDeque::new(),
            counters: RegionsCounters::default(),
            config,
        };
        regions.admit_peers();
        regions.publish();
        regions.settle();
        regions
    }

    /// Something happened. Time must not go backwards; a time that does is read as the latest one seen.
    ///
    /// Events about peers and links that are not known (any more) are ignored.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.advance(now);
        match event {
            Event::LinkUp { peer, session } => self.link_up(peer, session),
            Event::LinkDown { peer, why, began } => self.link_down(peer, why, began),
            Event::Heartbeat { peer, heartbeat } => self.heartbeat(peer, heartbeat),
            Event::Record { peer, record } => self.record(peer, &record),
            Event::Members { pools } => self.members(pools),
            Event::Gateway { up } => {
                if self.stance.gateway != up {
                    self.stance.gateway = up;
                    self.stance.number += 1;
                    self.settle();
                }
            }
            Event::Witness { peer, sent, alive } => self.witness(peer, sent, alive),
            Event::Siblings { holds } => {
                self.siblings_hold = holds;
                self.settle();
            }
            Event::Leads { leads } => self.set_leads(leads),
            Event::SiblingRecord { record } => self.sibling_record(record),
            Event::Declared { peer, lost } => self.declared(peer, lost),
            Event::Reconfigured(config) => self.reconfigured(config),
            Event::Shutdown => {
                self.shutting_down = true;
                self.settle();
            }
        }
    }

    /// What the driver must do next, oldest first; call until there is nothing.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`Self::handle_timeout`] wants to be called next. A call that comes several intervals late is read as sleep:
    /// everything is given back, because others may have taken this service for dead.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let silence_max = self.silence_max();
        let losses = self
            .peers
            .values()
            .filter(|peer| !peer.lost)
            .filter_map(|peer| Some(peer.pulse.as_of()?.after(silence_max)));
        losses.chain([self.next_tick]).min()
    }

    /// Time has come to the point that [`Self::poll_timeout`] named. Calling it early does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        self.advance(now);
    }

    /// Answers a peer's ping. To be called with pings in the order in which they came in, and to be sent before anything else is
    /// done: the peer relies on what is said. None for a peer that is not known.
    ///
    /// `peer` is who it is by its certificate; `pools` is what this region says of its pools.
    pub fn answer(
        &mut self,
        now: Time,
        peer: PeerId,
        ping: &Ping,
        pools: Vec<(Arc<str>, PeerReport)>,
    ) -> Option<Answer> {
        self.advance(now);
        self.asked(peer, ping)?;
        let own = self.own.held();
        let again_after = self.config.interval * RESEND_INTERVALS;
        let asker = self.peers.get_mut(&peer)?;
        let wants = asker
            .voices
            .wants(ping.stance.incarnation, own, self.now, again_after);
        let record = wants.then(|| self.own.clone());
        let silence_max = self.silence_max();
        let views = self.peers.values().map(|peer| View {
            region: peer.name.clone(),
            sight: peer.sight(self.now, silence_max),
            has: peer.record.held(),
        });
        Some(Answer {
            heartbeat: Heartbeat {
                session: ping.session,
                answers: ping.seq,
                version: self.config.version.clone(),
                stance: self.stance.clone(),
                pools,
                views: views.collect(),
            },
            record,
        })
    }

    /// The regions whose replicas this service holds.
    pub fn holds(&self) -> impl Iterator<Item = PeerId> + '_ {
        let held = self.peers.iter().filter(|(_, peer)| peer.claim.holds);
        held.map(|(id, _)| *id)
    }

    /// Figures as of `now`.
    #[must_use]
    pub fn status(&self, now: Time) -> RegionsStatus {
        let peers = self.peers.keys();
        RegionsStatus {
            name: self.config.name.clone(),
            incarnation: self.stance.incarnation,
            gateway: self.stance.gateway,
            record: self.own.held(),
            heirs: self.own.heirs.order.clone(),
            peers: peers.filter_map(|id| self.peer_status(*id, now)).collect(),
            counters: self.counters,
        }
    }

    /// The silence after which a peer is lost.
    fn silence_max(&self) -> Duration {
        self.config.interval * SILENCE_INTERVALS
    }

    /// Lets time pass: peers grow silent, pings fall due. After a sleep, gives everything back first.
    fn advance(&mut self, now: Time) {
        let slept = now.since(self.now) > self.config.interval * SLEEP_INTERVALS;
        self.now = self.now.max(now);
        if slept {
            self.slept();
        }
        self.find_lost();
        if self.now >= self.next_tick {
            self.next_tick = self.now.after(self.config.interval);
            self.tick();
        }
    }
}
