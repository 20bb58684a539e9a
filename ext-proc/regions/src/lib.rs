//! The core across regions: which regions live, and which region adopts the replicas of a dead one.
//!
//! [`Regions`] is *sans I/O* like the [`Router`](isotherm_router::Router): [`Regions::handle`] takes events,
//! [`Regions::reply`] answers pings, [`Regions::poll_effect`] returns work for the driver, and [`Regions::poll_timeout`] the
//! time of the next call. The driver keeps the links, probes replicas, and moves adopted replicas into and out of its pools.
//! `docs/design/recovery.md` has the adoption rule and the proof of its safety.

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

pub use event::{AdoptionBlocker, Effect, Event, LinkFailure, RegionsConfig, ReleaseReason};
pub use message::{
    Advertisement, Heartbeat, Incarnation, Liveness, PeerView, Ping, PingReply, PoolReplicas,
    RecordVersion, RegionName, RegionRecord, Session, SuccessorList,
};
pub use status::{PeerRegionStatus, RegionState, RegionsCounters, RegionsStatus};

use isotherm_router::{PeerId, PeerReport, Time};
use peer::PeerRegion;

/// Intervals without an accepted heartbeat after which a peer is lost.
const SILENCE_INTERVALS: u32 = 3;
/// Intervals of suspension after which other regions may have taken this service for dead.
const SUSPENSION_INTERVALS: u32 = 5;
/// Intervals that a death proof takes at least, after the peer was last heard. A service sends once an interval, so the proof
/// of a suspended service takes at least one interval less, and by then the service must notice its suspension.
const PROOF_INTERVALS: u32 = 7;
const _: () = assert!(
    PROOF_INTERVALS - 1 > SUSPENSION_INTERVALS,
    "a suspended service must notice first"
);
/// Intervals after which a record is sent again to a service that does not report it.
const RESEND_INTERVALS: u32 = 5;
/// Intervals with unreachable replicas, or with an unaccounted region, after which this region yields.
const BLOCKED_INTERVALS: u32 = 15;

/// State of one service among the regions.
#[derive(Debug)]
pub struct Regions {
    config: RegionsConfig,
    now: Time,
    next_tick: Time,
    /// Sequence number of the next ping.
    seq: u64,
    advertisement: Advertisement,
    own: Arc<RegionRecord>,
    /// Whether this service writes the region's record. A service without siblings does.
    is_record_leader: bool,
    /// Replicas that this service writes when it leads.
    proposed_pools: Option<Vec<PoolReplicas>>,
    successors_published_at: Time,
    adopted_by_siblings: BTreeSet<RegionName>,
    peers: BTreeMap<PeerId, PeerRegion>,
    names: BTreeMap<RegionName, PeerId>,
    /// Stored records of regions that the configuration does not name.
    unconfigured_records: BTreeMap<RegionName, Arc<RegionRecord>>,
    shutting_down: bool,
    effects: VecDeque<Effect>,
    counters: RegionsCounters,
}

impl Regions {
    /// Creates the state of a service that starts. `restored` holds the records that the last incarnation stored.
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
            is_record_leader: true,
            proposed_pools: None,
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

    /// Handles an event. A time before the latest one counts as the latest one.
    ///
    /// Events of unknown peers and links are ignored.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.advance(now);
        match event {
            Event::LinkUp(peer, session) => self.on_link_up(peer, session),
            Event::LinkDown {
                peer,
                failure,
                dial_started,
            } => self.on_link_down(peer, failure, dial_started),
            Event::Heartbeat(peer, heartbeat) => self.on_heartbeat(peer, heartbeat),
            Event::Record(peer, record) => self.on_record(peer, &record),
            Event::LocalPools(pools) => self.set_local_pools(pools),
            Event::GatewayChanged(is_connected) => {
                if self.advertisement.has_gateway != is_connected {
                    self.advertisement.has_gateway = is_connected;
                    self.advertisement.version += 1;
                    self.update_claims();
                }
            }
            Event::ReplicasProbed {
                peer,
                sent,
                any_answered,
            } => self.on_replicas_probed(peer, sent, any_answered),
            Event::SiblingsAdopted(regions) => {
                self.adopted_by_siblings = regions;
                self.update_claims();
            }
            Event::RecordLeadership(is_leader) => self.set_record_leadership(is_leader),
            Event::SiblingRecord(record) => self.on_sibling_record(record),
            Event::DeclaredLost { peer, is_lost } => self.on_declared_lost(peer, is_lost),
            Event::Reconfigured(config) => self.reconfigure(config),
            Event::Shutdown => {
                self.shutting_down = true;
                self.update_claims();
            }
        }
    }

    /// Takes the oldest effect. Call until there is none.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Returns the time of the next [`Self::handle_timeout`]. A call that is several intervals late counts as a suspension: all
    /// adopted replicas are released, because other regions may have taken this service for dead.
    pub fn poll_timeout(&self) -> Option<Time> {
        let silence_max = self.silence_max();
        let losses = self
            .peers
            .values()
            .filter(|peer| !peer.is_lost)
            .filter_map(|peer| Some(peer.heartbeats.as_of?.after(silence_max)));
        losses.chain([self.next_tick]).min()
    }

    /// Handles the time that [`Self::poll_timeout`] named. An early call does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        self.advance(now);
    }

    /// Replies to a peer's ping; `None` for an unknown peer. Pings are passed in the order of their arrival, and the reply is sent
    /// before any effect is carried out, because the peer relies on it.
    ///
    /// The sender's certificate names `peer`. `pools` are the reports of this region.
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
        let resend_after = self.config.interval * RESEND_INTERVALS;
        let sender = self.peers.get_mut(&peer)?;
        let is_needed = sender.services.needs_record(
            ping.advertisement.incarnation,
            own,
            self.now,
            resend_after,
        );
        let record = is_needed.then(|| self.own.clone());
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

    /// Returns the owners of the replicas that this service has adopted.
    pub fn adopted_regions(&self) -> impl Iterator<Item = PeerId> + '_ {
        let adopted = self.peers.iter().filter(|(_, peer)| peer.claim.is_adopted);
        adopted.map(|(id, _)| *id)
    }

    /// Returns the status as of `now`.
    pub fn status(&self, now: Time) -> RegionsStatus {
        let peers = self.peers.keys();
        RegionsStatus {
            name: self.config.name.clone(),
            has_gateway: self.advertisement.has_gateway,
            successors: self.own.successors.order.clone(),
            peers: peers.filter_map(|id| self.peer_status(*id, now)).collect(),
            counters: self.counters,
        }
    }

    /// Age of the last heartbeat at which a peer is lost.
    fn silence_max(&self) -> Duration {
        self.config.interval * SILENCE_INTERVALS
    }

    /// Advances the time. After a suspension, all adopted replicas are released first.
    fn advance(&mut self, now: Time) {
        let was_suspended = now.since(self.now) > self.config.interval * SUSPENSION_INTERVALS;
        self.now = self.now.max(now);
        if was_suspended {
            self.on_suspension();
        }
        self.mark_lost_peers();
        if self.now >= self.next_tick {
            self.next_tick = self.now.after(self.config.interval);
            self.tick();
        }
    }
}
