//! The core across regions: which regions are heard, and which region decides about the replicas of each.
//!
//! Both halves are *sans I/O* like the [`Router`](isotherm_router::Router): they take events and times, and return work for the
//! driver.
//!
//! - [`Regions`] judges the heartbeats of the services of other regions.
//! - [`Leases`] holds the lease of this region's own replicas in a store, and takes those of a dead region.
//!
//! `docs/design/recovery.md` has the rules of both.

mod entry;
mod event;
mod heartbeats;
mod leases;
mod message;
mod status;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub use entry::{PoolReplicas, RegionEntry, StoreVersion, StoredEntry};
pub use event::{Effect, Event, RegionsConfig};
pub use heartbeats::HeartbeatMonitor;
pub use leases::{
    EntryStatus, LeaseConfig, LeaseCounters, LeaseEffect, LeaseInputs, Leases, WriteResult,
};
pub use message::{Heartbeat, Ping, RegionName};
pub use status::{RegionState, RegionsCounters};

use isotherm_router::{PeerId, Time};

/// Intervals without an accepted heartbeat after which a peer is lost.
const SILENCE_INTERVALS: u32 = 3;

/// State of the links to other regions, as one service hears them.
#[derive(Debug)]
pub struct Regions {
    config: RegionsConfig,
    now: Time,
    peers: BTreeMap<PeerId, PeerRegion>,
    effects: VecDeque<Effect>,
    counters: RegionsCounters,
}

/// Another region, as one service hears it.
#[derive(Debug)]
pub struct PeerRegion {
    name: RegionName,
    is_refused: bool,
    /// Heartbeats of the region's service.
    pub heartbeats: HeartbeatMonitor,
    has_gateway: bool,
    /// Whether the last heartbeat is too old. No request is forwarded to a lost peer.
    is_lost: bool,
    /// Version of the region's software.
    pub software_version: Option<Arc<str>>,
}

impl PeerRegion {
    fn new(name: RegionName) -> Self {
        Self {
            name,
            is_refused: false,
            heartbeats: HeartbeatMonitor::default(),
            has_gateway: false,
            is_lost: false,
            software_version: None,
        }
    }

    /// State of the region.
    pub fn state(&self) -> RegionState {
        match self.heartbeats.as_of {
            _ if self.is_refused => RegionState::Refused,
            None => RegionState::NeverHeard,
            Some(_) if self.is_lost => RegionState::Lost,
            Some(_) if self.has_gateway => RegionState::Up,
            Some(_) => RegionState::NoGateway,
        }
    }
}

impl Regions {
    /// Creates the state of a service that starts.
    #[must_use]
    pub fn new(config: RegionsConfig, now: Time) -> Self {
        let mut regions = Self {
            now,
            peers: BTreeMap::new(),
            effects: VecDeque::new(),
            counters: RegionsCounters::default(),
            config,
        };
        regions.add_configured_peers();
        regions
    }

    /// Handles an event. A time before the latest one counts as the latest one.
    ///
    /// Events of unknown peers are ignored.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.handle_timeout(now);
        match event {
            Event::LinkDown { peer, is_refused } => {
                if let Some(peer) = self.peers.get_mut(&peer) {
                    peer.is_refused = is_refused;
                }
            }
            Event::Heartbeat(peer, ping, heartbeat) => self.on_heartbeat(peer, ping, heartbeat),
            Event::Reconfigured(config) => {
                self.config = config;
                let kept = &self.config.peers;
                self.peers.retain(|id, peer| {
                    kept.iter()
                        .any(|(kept, name)| kept == id && *name == peer.name)
                });
                self.add_configured_peers();
            }
        }
    }

    /// Takes the oldest effect. Call until there is none.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Returns the time of the next [`Self::handle_timeout`]: the next loss of a peer.
    pub fn poll_timeout(&self) -> Option<Time> {
        let silence_max = self.silence_max();
        let heard = self.peers.values().filter(|peer| !peer.is_lost);
        let losses = heard.filter_map(|peer| Some(peer.heartbeats.as_of?.after(silence_max)));
        losses.min()
    }

    /// Handles the time that [`Self::poll_timeout`] named. An early call does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.mark_lost_peers();
    }

    /// Returns each peer, in order of id.
    pub fn peers(&self) -> impl Iterator<Item = (PeerId, &PeerRegion)> {
        self.peers.iter().map(|(id, peer)| (*id, peer))
    }

    /// Returns the regions that are heard with a gateway, nearest first.
    pub fn heard(&self) -> Vec<RegionName> {
        let up = self.peers.values();
        let mut up: Vec<_> = up.filter(|peer| peer.state() == RegionState::Up).collect();
        up.sort_by_key(|peer| (peer.heartbeats.round_trip, &peer.name));
        up.into_iter().map(|peer| peer.name.clone()).collect()
    }

    /// Counters since the start.
    pub const fn counters(&self) -> RegionsCounters {
        self.counters
    }

    /// Age of the last heartbeat at which a peer is lost.
    fn silence_max(&self) -> Duration {
        self.config.interval * SILENCE_INTERVALS
    }

    fn on_heartbeat(&mut self, id: PeerId, ping: Ping, heartbeat: Heartbeat) {
        let (now, age_max) = (self.now, self.silence_max());
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.is_refused = false;
        if !peer.heartbeats.on_reply(ping, &heartbeat, now, age_max) {
            self.counters.heartbeats_rejected += 1;
            return;
        }
        self.counters.heartbeats += 1;
        peer.is_lost = false;
        peer.has_gateway = heartbeat.has_gateway;
        peer.software_version = Some(heartbeat.version);
        self.effects.push_back(Effect::UpdatePeer {
            peer: id,
            pools: heartbeat.pools,
            as_of: ping.sent,
            round_trip: peer.heartbeats.round_trip.unwrap_or_default(),
        });
    }

    /// Marks each peer as lost whose last heartbeat is too old.
    fn mark_lost_peers(&mut self) {
        let silence_max = self.silence_max();
        for (id, peer) in &mut self.peers {
            let is_silent = |as_of| self.now.since(as_of) >= silence_max;
            if !peer.is_lost && peer.heartbeats.as_of.is_some_and(is_silent) {
                peer.is_lost = true;
                self.counters.regions_lost += 1;
                self.effects.push_back(Effect::MarkPeerLost(*id));
            }
        }
    }

    /// Adds the peers of the configuration that are not known yet.
    fn add_configured_peers(&mut self) {
        for (id, name) in &self.config.peers {
            let peer = || PeerRegion::new(name.clone());
            self.peers.entry(*id).or_insert_with(peer);
        }
    }
}
