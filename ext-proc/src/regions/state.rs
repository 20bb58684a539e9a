//! State of the driver: the core, the links, and the inputs from this service and its siblings.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use isotherm_regions::{Advertisement, Event, Incarnation, PoolReplicas, RegionName, Regions};
use isotherm_router::{PeerId, Time};
use tokio::task::JoinSet;

use super::adoption::Adoptions;
use super::links::Links;
use super::replica_probe::ReplicaProber;
use super::status::{CertificateState, PlacementCounts};
use super::store::RecordStore;
use crate::config::RegionConfig;
use crate::peering::Message;

/// Time after the start of this service in which its Envoy counts as connected. Otherwise, when several regions start
/// together, the first one adopts the replicas of all others for a while.
const GATEWAY_START_MAX: Duration = Duration::from_secs(5);

/// State behind the driver's lock.
#[derive(Debug)]
pub(super) struct DriverState {
    pub(super) regions: Regions,
    pub(super) config: RegionConfig,
    pub(super) links: Links,
    pub(super) adoptions: Adoptions,
    pub(super) counts: PlacementCounts,
    pub(super) certificate: CertificateState,
    /// Rejected inbound links since the start.
    pub(super) handshakes_rejected: u64,
    /// Addresses of peers' replicas outside their networks.
    pub(super) addresses_rejected: u64,
    incarnation: Incarnation,
    pub(super) prober: ReplicaProber,
    /// Tasks that probe replicas; dropping one aborts it.
    pub(super) probes: BTreeMap<PeerId, JoinSet<()>>,
    pub(super) store: RecordStore,
    /// Whether an Envoy is connected to this service.
    own_gateway: bool,
    /// End of the time in which the first Envoy counts as connected.
    gateway_expected_until: Option<Time>,
    /// Last inputs of the core.
    pub(super) last_inputs: LastInputs,
    /// Sequence number of the last ping to a sibling.
    seq: u64,
    /// Whether all siblings are known: those of the file are, those in Kubernetes when their list has arrived.
    pub(super) are_siblings_known: bool,
    /// Time since which the siblings are configured.
    pub(super) siblings_since: Option<Time>,
}

#[derive(Debug)]
pub(super) struct LastInputs {
    is_leader: bool,
    has_gateway: bool,
    adopted: BTreeSet<RegionName>,
    pub(super) pools: Option<Vec<PoolReplicas>>,
}

impl DriverState {
    pub(super) fn new(
        started: Time,
        config: RegionConfig,
        incarnation: Incarnation,
        regions: Regions,
        links: Links,
        adoptions: Adoptions,
        store: RecordStore,
    ) -> Self {
        Self {
            regions,
            config,
            links,
            adoptions,
            counts: PlacementCounts::default(),
            certificate: CertificateState::default(),
            handshakes_rejected: 0,
            addresses_rejected: 0,
            incarnation,
            prober: ReplicaProber::new(),
            probes: BTreeMap::new(),
            store,
            own_gateway: false,
            gateway_expected_until: Some(started.after(GATEWAY_START_MAX)),
            last_inputs: LastInputs {
                is_leader: true,
                has_gateway: false,
                adopted: BTreeSet::new(),
                pools: None,
            },
            seq: 0,
            are_siblings_known: true,
            siblings_since: None,
        }
    }

    /// Records whether an Envoy is connected to this service.
    pub(super) fn set_gateway(&mut self, is_connected: bool) {
        self.own_gateway = is_connected;
        if is_connected {
            self.gateway_expected_until = None;
        }
    }

    /// Returns this service's own state for siblings, without the state that it has from them.
    pub(super) fn own_advertisement(&self) -> Advertisement {
        let owners = self.regions.adopted_regions();
        Advertisement {
            incarnation: self.incarnation,
            has_gateway: self.own_gateway,
            adopted: owners.filter_map(|peer| self.region_of(peer)).collect(),
            ..Advertisement::default()
        }
    }

    pub(super) fn ping_siblings(&mut self, now: Time) {
        let advertisement = self.own_advertisement();
        let version = self.regions.own_record().record_version();
        for link in &mut self.links.siblings {
            self.seq += 1;
            if let Some(ping) = link
                .sibling
                .next_ping(now, self.seq, version, &advertisement)
            {
                // A ping that cannot be sent counts as an unanswered one.
                let _ = link.dialer.send(&Message::Ping(ping));
            }
        }
    }

    /// Passes changes of the siblings' state to the core.
    pub(super) fn apply_sibling_state(&mut self, now: Time) {
        let siblings = || self.sibling_advertisements(now).flatten();
        let adopted = siblings().flat_map(|sibling| &sibling.adopted);
        let regions: BTreeSet<_> = adopted.cloned().collect();
        let expected = self.gateway_expected_until.is_some_and(|until| now < until);
        let is_connected =
            self.own_gateway || expected || siblings().any(|sibling| sibling.has_gateway);
        let is_leader = self.is_record_leader(now);
        let last = &mut self.last_inputs;
        if last.is_leader != is_leader {
            last.is_leader = is_leader;
            self.regions.handle(now, Event::RecordLeadership(is_leader));
        }
        if last.adopted != regions {
            last.adopted.clone_from(&regions);
            self.regions.handle(now, Event::SiblingsAdopted(regions));
        }
        if last.has_gateway != is_connected {
            last.has_gateway = is_connected;
            self.regions
                .handle(now, Event::GatewayChanged(is_connected));
        }
    }

    /// Whether this service writes its region's record: the smallest incarnation of the services that hear each other does.
    /// A service that does not know its siblings yet leaves it to them until it would have heard them.
    fn is_record_leader(&self, now: Time) -> bool {
        let has_waited = |since| now.since(since) >= self.config.silence_max() * 2;
        let siblings = || self.sibling_advertisements(now);
        let are_heard = self.are_siblings_known && siblings().all(|sibling| sibling.is_some());
        let is_decided = are_heard || self.siblings_since.is_none_or(has_waited);
        let mut heard = siblings().flatten();
        is_decided && heard.all(|sibling| self.incarnation < sibling.incarnation)
    }

    /// Returns the advertisement of each sibling; `None` for a silent sibling.
    fn sibling_advertisements(&self, now: Time) -> impl Iterator<Item = Option<&Advertisement>> {
        let silence_max = self.config.silence_max();
        let siblings = self.links.siblings.iter();
        siblings.map(move |link| link.sibling.advertisement(now, silence_max))
    }

    fn region_of(&self, peer: PeerId) -> Option<RegionName> {
        let link = self.links.peers.get(&peer)?;
        Some(link.config.name.as_str().into())
    }

    pub(super) fn name_of(&self, peer: PeerId) -> &str {
        let link = self.links.peers.get(&peer);
        link.map_or("?", |link| &link.config.name)
    }
}
