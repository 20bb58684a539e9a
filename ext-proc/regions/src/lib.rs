//! The regions, as one service sees them: who is heard, who is dead, and whose replicas this region adopts.
//!
//! *Sans I/O* like the [`Router`](isotherm_router::Router): [`Regions::handle`] for what comes in, [`Regions::answer`] for what a
//! peer asks, [`Regions::poll_effect`] for what goes out, [`Regions::poll_timeout`] for when to call again. The driver
//! dials, protects and keeps the links, asks replicas when told to, and moves them into and out of its pools.
//! `ALGORITHM.md`, "Recovery", has the rule and why it is safe.

mod adoption;
mod claims;
mod death_proof;
mod event;
mod heartbeats;
mod inbound;
mod message;
mod own_record;
mod peer;

mod record_writer;

mod records;
mod services;
mod status;
mod tick;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

pub use event::{Effect, Event, LinkFailure, RegionsConfig, ReleaseReason};
pub use message::{
    Advertisement, Heartbeat, Incarnation, Liveness, PeerView, Ping, PingReply, PoolReplicas,
    RecordVersion, RegionName, RegionRecord, Session, SuccessorList,
};
pub use status::{AdoptionBlocker, PeerRegionStatus, RegionState, RegionsCounters, RegionsStatus};

use isotherm_router::{PeerId, PeerReport, Time};
use peer::PeerRegion;
use record_writer::RecordWriter;

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
    advertisement: Advertisement,
    own: Arc<RegionRecord>,
    record_writer: RecordWriter,
    /// When the newest list of heirs was published.
    successors_published_at: Time,
    adopted_by_siblings: BTreeSet<RegionName>,
    peers: BTreeMap<PeerId, PeerRegion>,
    names: BTreeMap<RegionName, PeerId>,
    /// Records of regions that the configuration does not name (yet), from the last life.
    unconfigured_records: BTreeMap<RegionName, Arc<RegionRecord>>,
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
        restored: impl IntoIterator<Item = RegionRecord>,
        now: Time,
    ) -> Self {
        let mut unconfigured_records: BTreeMap<_, _> = restored
            .into_iter()
            .filter(records::is_within_limits)
            .map(|record| (record.region.clone(), Arc::new(record)))
            .collect();
        let own = unconfigured_records
            .remove(&config.name)
            .unwrap_or_else(|| Arc::new(records::empty_record(config.name.clone())));
        let mut regions = Self {
            now,
            next_tick: now,
            seq: 1,
            advertisement: Advertisement {
                incarnation,
                ..Advertisement::default()
            },
            own,
            record_writer: RecordWriter::default(),
            successors_published_at: now,
            adopted_by_siblings: BTreeSet::new(),
            peers: BTreeMap::new(),
            names: BTreeMap::new(),
            unconfigured_records,
            shutting_down: false,
            effects: VecDeque::new(),
            counters: RegionsCounters::default(),
            config,
        };
        regions.add_configured_peers();
        regions.publish_successors();
        regions.update_claims();
        regions
    }

    /// Something happened. Time must not go backwards; a time that does is read as the latest one seen.
    ///
    /// Events about peers and links that are not known (any more) are ignored.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.advance(now);
        match event {
            Event::LinkUp { peer, session } => self.on_link_up(peer, session),
            Event::LinkDown {
                peer,
                failure: why,
                dial_started: began,
            } => self.on_link_down(peer, why, began),
            Event::Heartbeat { peer, heartbeat } => self.on_heartbeat(peer, heartbeat),
            Event::Record { peer, record } => self.on_record(peer, &record),
            Event::LocalPools { pools } => self.set_local_pools(pools),
            Event::GatewayChanged { is_connected: up } => {
                if self.advertisement.has_gateway != up {
                    self.advertisement.has_gateway = up;
                    self.advertisement.version += 1;
                    self.update_claims();
                }
            }
            Event::ReplicasProbed {
                peer,
                sent,
                any_answered: alive,
            } => self.on_replicas_probed(peer, sent, alive),
            Event::SiblingsAdopted { regions: holds } => {
                self.adopted_by_siblings = holds;
                self.update_claims();
            }
            Event::RecordLeadership { is_leader: leads } => self.set_record_leadership(leads),
            Event::SiblingRecord { record } => self.on_sibling_record(record),
            Event::DeclaredLost {
                peer,
                is_lost: lost,
            } => self.on_declared_lost(peer, lost),
            Event::Reconfigured(config) => self.reconfigure(config),
            Event::Shutdown => {
                self.shutting_down = true;
                self.update_claims();
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
            .filter(|peer| !peer.is_lost)
            .filter_map(|peer| Some(peer.heartbeats.as_of()?.after(silence_max)));
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
    pub fn reply(
        &mut self,
        now: Time,
        peer: PeerId,
        ping: &Ping,
        pools: Vec<(Arc<str>, PeerReport)>,
    ) -> Option<PingReply> {
        self.advance(now);
        self.on_ping(peer, ping)?;
        let own = self.own.record_version();
        let again_after = self.config.interval * RESEND_INTERVALS;
        let asker = self.peers.get_mut(&peer)?;
        let wants =
            asker
                .services
                .needs_record(ping.advertisement.incarnation, own, self.now, again_after);
        let record = wants.then(|| self.own.clone());
        let silence_max = self.silence_max();
        let views = self.peers.values().map(|peer| PeerView {
            region: peer.name.clone(),
            liveness: peer.liveness(self.now, silence_max),
            record_version: peer.record.record_version(),
        });
        Some(PingReply {
            heartbeat: Heartbeat {
                session: ping.session,
                ping_seq: ping.seq,
                version: self.config.version.clone(),
                advertisement: self.advertisement.clone(),
                pools,
                views: views.collect(),
            },
            record,
        })
    }

    /// The regions whose replicas this service holds.
    pub fn adopted_regions(&self) -> impl Iterator<Item = PeerId> + '_ {
        let held = self.peers.iter().filter(|(_, peer)| peer.claim.is_adopted);
        held.map(|(id, _)| *id)
    }

    /// Figures as of `now`.
    #[must_use]
    pub fn status(&self, now: Time) -> RegionsStatus {
        let peers = self.peers.keys();
        RegionsStatus {
            name: self.config.name.clone(),
            incarnation: self.advertisement.incarnation,
            has_gateway: self.advertisement.has_gateway,
            record_version: self.own.record_version(),
            successors: self.own.successors.order.clone(),
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
            self.on_suspension();
        }
        self.mark_lost_peers();
        if self.now >= self.next_tick {
            self.next_tick = self.now.after(self.config.interval);
            self.tick();
        }
    }
}
