//! State of the driver: the core, the links, and the inputs from this service and its siblings.

use std::collections::BTreeSet;
use std::time::Duration;

use ipnet::IpNet;
use isotherm_regions::{Leases, PoolReplicas, RegionEntry, RegionName, StoredEntry};
use isotherm_router::{PeerId, Time};
use tokio::sync::watch;

use super::leased::{HeldLease, LeasedReplicas, allowed};
use super::links::Links;
use super::status::{RegionState, RegionsCounters};
use crate::config::{Address, PeerConfig, RegionConfig};

/// Time after the start of this service in which its Envoy counts as connected. Otherwise a region gives its lease up while its
/// Envoy connects.
const GATEWAY_START_MAX: Duration = Duration::from_secs(5);

/// State behind the driver's lock.
#[derive(Debug)]
pub(super) struct DriverState {
    pub(super) config: RegionConfig,
    pub(super) links: Links,
    pub(super) leased: LeasedReplicas,
    /// Ownership by leases; `None` without a store.
    pub(super) leases: Option<Leases>,
    /// Regions that the store names.
    pub(super) members: watch::Sender<Vec<PeerConfig>>,
    pub(super) counters: RegionsCounters,
    /// Earliest time of the next log line of a rejected link.
    pub(super) next_warning: Time,
    /// Whether an Envoy is connected to this service.
    pub(super) own_gateway: bool,
    /// End of the time in which the first Envoy counts as connected.
    gateway_expected_until: Option<Time>,
}

impl DriverState {
    pub(super) fn new(
        started: Time,
        config: RegionConfig,
        leased: LeasedReplicas,
        leases: Option<Leases>,
    ) -> Self {
        Self {
            config,
            links: Links::default(),
            leased,
            leases,
            members: watch::Sender::default(),
            counters: RegionsCounters::default(),
            next_warning: started,
            own_gateway: false,
            gateway_expected_until: Some(started.after(GATEWAY_START_MAX)),
        }
    }

    /// Records whether an Envoy is connected to this service, and this region's own replicas if they are known.
    pub(super) fn set_inputs(&mut self, has_gateway: bool, pools: Option<Vec<PoolReplicas>>) {
        self.own_gateway = has_gateway;
        if has_gateway {
            self.gateway_expected_until = None;
        }
        if let (Some(leases), Some(_)) = (&mut self.leases, &pools) {
            leases.inputs_mut().pools = pools;
        }
    }

    /// Whether an Envoy is connected to this service or to a sibling that is heard.
    pub(super) fn has_gateway(&self, now: Time) -> bool {
        let silence_max = self.config.silence_max();
        let siblings = self.links.siblings();
        let mut siblings = siblings.filter_map(|link| link.heard.fresh(now, silence_max));
        self.own_gateway
            || self.gateway_expected_until.is_some_and(|until| now < until)
            || siblings.any(|heartbeat| heartbeat.has_gateway)
    }

    /// Passes the gateway and the regions that are heard to the leases.
    pub(super) fn update_leases(&mut self, now: Time) {
        let (has_gateway, heard) = (self.has_gateway(now), self.heard(now));
        if let Some(leases) = &mut self.leases {
            let inputs = leases.inputs_mut();
            (inputs.has_gateway, inputs.heard) = (has_gateway, heard);
            leases.handle_timeout(now);
        }
    }

    /// The regions that are heard with a gateway, nearest first.
    fn heard(&self, now: Time) -> Vec<RegionName> {
        let silence_max = self.config.silence_max();
        let peers = self.links.peers().map(|(_, link)| link);
        let up = peers.filter(|link| link.region_state(now, silence_max) == RegionState::Up);
        let mut up: Vec<_> = up.collect();
        up.sort_by_key(|link| (link.heard.round_trip, &link.endpoint.region));
        let names = up.into_iter().map(|link| link.endpoint.region.as_str());
        names.map(RegionName::from).collect()
    }

    /// Returns the regions of whose replicas this service may use none.
    pub(super) fn unusable(&self, found: &[StoredEntry]) -> BTreeSet<RegionName> {
        let entries = found.iter().map(|stored| &stored.entry);
        let is_refused = |entry: &&RegionEntry| {
            let mut addresses = entry.pools.iter().flat_map(|pool| &pool.replicas);
            let networks = self.networks_of(&entry.region);
            !addresses.any(|address| allowed(networks, address).is_some())
        };
        let refused = entries.filter(is_refused);
        refused.map(|entry| entry.region.clone()).collect()
    }

    /// Returns the networks that the configuration gives to the replicas of a region.
    fn networks_of(&self, region: &str) -> &[IpNet] {
        let named = self.config.peers.iter().find(|peer| peer.name == region);
        let own = named.map_or(&[][..], |peer| &peer.replicas);
        match &self.config.store {
            Some(store) if own.is_empty() => &store.networks,
            _ => own,
        }
    }

    /// Publishes the regions that the store names, and the configuration does not.
    pub(super) fn update_members(&self) {
        let Some((leases, store)) = self.leases.as_ref().zip(self.config.store.as_ref()) else {
            return;
        };
        let own = &self.config.name;
        let members = leases.entries().filter(|status| status.is_member);
        let members = members.map(|status| status.entry);
        let others = members.filter(|entry| *entry.region != **own);
        let members = others.filter_map(|entry| {
            let name = &*entry.region;
            Some(PeerConfig {
                name: name.to_owned(),
                address: Address::parse(&entry.address).ok()?,
                replicas: store.networks.clone(),
            })
        });
        let members: Vec<_> = members.collect();
        self.members.send_if_modified(|known| {
            let is_new = *known != members;
            *known = members;
            is_new
        });
    }

    /// Uses the replicas of other regions whose lease this region holds, and no others.
    pub(super) fn sync_leased(&mut self) {
        let Some(leases) = &self.leases else {
            return;
        };
        // A region that the store names may become a peer after its lease was taken.
        let held = leases.owned().filter_map(|entry| {
            let lease = HeldLease {
                region: entry.region.clone(),
                revision: entry.revision,
                pools: entry.pools.clone(),
                networks: self.networks_of(&entry.region).to_vec(),
            };
            Some((self.id_of(&entry.region)?, lease))
        });
        let (held, is_suspended) = (held.collect(), leases.is_suspended());
        self.leased.sync(held, is_suspended);
    }

    fn id_of(&self, region: &RegionName) -> Option<PeerId> {
        let mut peers = self.links.peers();
        let (id, _) = peers.find(|(_, link)| *link.endpoint.region == **region)?;
        Some(id)
    }
}
