//! What the lock guards: the core of the regions, the links, and what this service and its siblings are to the core.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use isotherm_regions::{Advertisement, Event, Incarnation, PoolReplicas, RegionName, Regions};
use isotherm_router::{PeerId, Time};
use tokio::task::AbortHandle;

use super::adoption::Adoptions;
use super::links::Links;
use super::replica_probe::ReplicaProber;
use super::status::{CertificateState, PlacementCounts};
use super::store::RecordStore;
use crate::config::RegionConfig;
use crate::peering::Message;

/// How long after this service its Envoy may start before its region counts as one without a gateway: otherwise, when
/// whole regions start, whoever is first adopts the replicas of all others for a while.
const GATEWAY_STARTS_WITHIN: Duration = Duration::from_secs(5);

/// What the lock guards.
#[derive(Debug)]
pub(super) struct DriverState {
    pub(super) regions: Regions,
    pub(super) config: RegionConfig,
    pub(super) links: Links,
    pub(super) adoptions: Adoptions,
    pub(super) counts: PlacementCounts,
    pub(super) certificate: CertificateState,
    /// Callers that were turned away since the start.
    pub(super) turned_away: u64,
    incarnation: Incarnation,
    pub(super) witnesses: ReplicaProber,
    pub(super) watched: BTreeMap<PeerId, ProbeTask>,
    pub(super) store: RecordStore,
    /// Whether an Envoy is connected to this very service.
    own_gateway: bool,
    /// Until when the first one counts as connected: the two start together, in either order.
    gateway_expected_until: Option<Time>,
    /// What the core was told last.
    pub(super) last_inputs: LastInputs,
    /// The number of the last question to siblings.
    seq: u64,
    /// When this service was told of these siblings.
    pub(super) siblings_since: Option<Time>,
}

#[derive(Debug)]
pub(super) struct LastInputs {
    leads: bool,
    gateway: bool,
    holds: BTreeSet<RegionName>,
    pub(super) members: Option<Vec<PoolReplicas>>,
}

/// A task that asks the replicas of a region.
#[derive(Debug)]
pub(super) struct ProbeTask(pub(super) AbortHandle);

impl Drop for ProbeTask {
    fn drop(&mut self) {
        self.0.abort();
    }
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
            turned_away: 0,
            incarnation,
            witnesses: ReplicaProber::new(),
            watched: BTreeMap::new(),
            store,
            own_gateway: false,
            gateway_expected_until: Some(started.after(GATEWAY_STARTS_WITHIN)),
            last_inputs: LastInputs {
                leads: true,
                gateway: false,
                holds: BTreeSet::new(),
                members: None,
            },
            seq: 0,
            siblings_since: None,
        }
    }

    /// Whether an Envoy is connected to this very service.
    pub(super) fn gateway_is(&mut self, up: bool) {
        self.own_gateway = up;
        if up {
            self.gateway_expected_until = None;
        }
    }

    /// Where this service stands by itself: siblings must not hear from it what it has from them.
    pub(super) fn own_stance(&self) -> Advertisement {
        let held = self.regions.adopted_regions();
        Advertisement {
            incarnation: self.incarnation,
            has_gateway: self.own_gateway,
            adopted: held.filter_map(|peer| self.region_of(peer)).collect(),
            ..Advertisement::default()
        }
    }

    pub(super) fn ask_siblings(&mut self, now: Time) {
        let stance = self.own_stance();
        let has = self.regions.own_record().record_version();
        for link in &mut self.links.siblings {
            self.seq += 1;
            if let Some(ping) = link.sibling.ask(now, self.seq, has, &stance) {
                // A link that takes no question is one that gives no answer: silence tells.
                let _ = link.tell(&Message::Ping(ping));
            }
        }
    }

    /// Tells the core what siblings say, where that is news.
    pub(super) fn heed_siblings(&mut self, now: Time) {
        let silence_max = self.config.silence_max();
        let siblings = || self.links.siblings.iter().map(|link| &link.sibling);
        let holds: BTreeSet<_> = siblings()
            .filter_map(|sibling| sibling.holds(now, silence_max))
            .flatten()
            .cloned()
            .collect();
        let expected = self.gateway_expected_until.is_some_and(|until| now < until);
        let gateway = self.own_gateway
            || expected
            || siblings().any(|sibling| sibling.gateway(now, silence_max));
        let leads = self.leads(now);
        if leads != self.last_inputs.leads {
            self.last_inputs.leads = leads;
            self.regions
                .handle(now, Event::RecordLeadership { is_leader: leads });
        }
        if holds != self.last_inputs.holds {
            self.last_inputs.holds.clone_from(&holds);
            self.regions
                .handle(now, Event::SiblingsAdopted { regions: holds });
        }
        if gateway != self.last_inputs.gateway {
            self.last_inputs.gateway = gateway;
            self.regions.handle(
                now,
                Event::GatewayChanged {
                    is_connected: gateway,
                },
            );
        }
    }

    /// Whether this service writes its region's record: of those that hear each other, the one with the smallest number.
    /// One that does not know its siblings yet leaves it to them until it would have heard them.
    fn leads(&self, now: Time) -> bool {
        let silence_max = self.config.silence_max();
        let siblings = self.links.siblings.iter();
        let heard: Vec<_> = siblings
            .map(|link| link.sibling.incarnation(now, silence_max))
            .collect();
        let known = heard.iter().all(Option::is_some)
            || self
                .siblings_since
                .is_none_or(|since| now.since(since) >= silence_max * 2);
        known
            && heard
                .into_iter()
                .flatten()
                .all(|other| self.incarnation < other)
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
