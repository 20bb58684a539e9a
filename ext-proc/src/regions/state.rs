//! State of the driver: the cores, the links, and the inputs from this service and its siblings.

use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use isotherm_regions::{
    LeaseEffect, LeaseInputs, Leases, PoolReplicas, RegionEntry, RegionName, Regions, StoredEntry,
};
use isotherm_router::{PeerId, Time};
use tokio::sync::{mpsc, watch};

use super::leased::LeasedReplicas;
use super::links::Links;
use super::status::{CertificateState, PlacementCounts};
use crate::config::{Address, PeerConfig, RegionConfig};

/// Time after the start of this service in which its Envoy counts as connected. Otherwise a region gives its lease up while its
/// Envoy connects.
const GATEWAY_START_MAX: Duration = Duration::from_secs(5);

/// State behind the driver's lock.
#[derive(Debug)]
pub(super) struct DriverState {
    pub(super) regions: Regions,
    pub(super) config: RegionConfig,
    pub(super) links: Links,
    pub(super) leased: LeasedReplicas,
    /// Ownership by leases, with the calls that wait for the store; `None` without a store. The core has at most one list and one
    /// write of each record under way.
    pub(super) leases: Option<(Leases, mpsc::UnboundedSender<LeaseEffect>)>,
    inputs: LeaseInputs,
    /// Regions that the store names.
    pub(super) members: watch::Sender<Vec<PeerConfig>>,
    pub(super) counts: PlacementCounts,
    pub(super) certificate: CertificateState,
    /// Rejected inbound connections and requests since the start.
    pub(super) handshakes_rejected: u64,
    /// Addresses of leased replicas outside their networks.
    pub(super) addresses_rejected: u64,
    /// Whether an Envoy is connected to this service.
    pub(super) own_gateway: bool,
    /// End of the time in which the first Envoy counts as connected.
    gateway_expected_until: Option<Time>,
}

impl DriverState {
    pub(super) fn new(
        started: Time,
        config: RegionConfig,
        regions: Regions,
        links: Links,
        leased: LeasedReplicas,
        leases: Option<(Leases, mpsc::UnboundedSender<LeaseEffect>)>,
    ) -> Self {
        let advertise = config
            .store
            .as_ref()
            .and_then(|store| store.advertise.as_ref());
        let address = advertise.map(Address::to_string).unwrap_or_default();
        Self {
            regions,
            config,
            links,
            leased,
            leases,
            inputs: LeaseInputs {
                address: address.into(),
                ..LeaseInputs::default()
            },
            members: watch::Sender::default(),
            counts: PlacementCounts::default(),
            certificate: CertificateState::default(),
            handshakes_rejected: 0,
            addresses_rejected: 0,
            own_gateway: false,
            gateway_expected_until: Some(started.after(GATEWAY_START_MAX)),
        }
    }

    /// Records whether an Envoy is connected to this service.
    pub(super) fn set_gateway(&mut self, is_connected: bool) {
        self.own_gateway = is_connected;
        if is_connected {
            self.gateway_expected_until = None;
        }
    }

    /// Whether an Envoy is connected to this service or to a sibling that is heard.
    pub(super) fn has_gateway(&self, now: Time) -> bool {
        let silence_max = self.config.silence_max();
        let mut siblings = self.links.siblings.iter();
        self.own_gateway
            || self.gateway_expected_until.is_some_and(|until| now < until)
            || siblings.any(|link| link.sibling.has_gateway(now, silence_max))
    }

    /// Records this region's own replicas, for the store.
    pub(super) fn set_local_pools(&mut self, now: Time, pools: Vec<PoolReplicas>) {
        if self.inputs.pools.as_ref() != Some(&pools) {
            self.inputs.pools = Some(pools);
            self.set_inputs(now);
        }
    }

    /// Passes changes of the gateway and of the regions that are heard to the leases.
    pub(super) fn update_leases(&mut self, now: Time) {
        let (has_gateway, heard) = (self.has_gateway(now), self.regions.heard());
        if (self.inputs.has_gateway, &self.inputs.heard) != (has_gateway, &heard) {
            self.inputs.has_gateway = has_gateway;
            self.inputs.heard = heard;
            self.set_inputs(now);
        }
    }

    /// Notes the regions of whose replicas this service may use none.
    pub(super) fn refuse_unusable(&mut self, found: &[StoredEntry]) {
        let entries = found.iter().map(|stored| &stored.entry);
        let is_refused = |entry: &&RegionEntry| {
            let mut addresses = entry.pools.iter().flat_map(|pool| &pool.replicas);
            let networks = self.networks_of(entry.region.as_str());
            !addresses.any(|address| is_within(networks, address))
        };
        let refused = entries.filter(is_refused).map(|entry| entry.region.clone());
        self.inputs.refused = refused.collect();
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

    fn set_inputs(&mut self, now: Time) {
        if let Some((leases, _)) = &mut self.leases {
            leases.set_inputs(now, self.inputs.clone());
        }
    }

    /// Publishes the regions that the store names, and the configuration does not.
    pub(super) fn update_members(&self) {
        let Some(((leases, _), store)) = self.leases.as_ref().zip(self.config.store.as_ref())
        else {
            return;
        };
        let own = &self.config.name;
        let members = leases.entries().filter(|entry| entry.is_member);
        let others = members.filter(|entry| entry.region.as_str() != own);
        let members = others.filter_map(|entry| {
            let name = entry.region.as_str();
            Some(PeerConfig {
                name: name.to_owned(),
                address: Address::parse(&entry.address).ok()?,
                cluster: format!("region-{name}"),
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

    /// Removes the addresses outside the networks that the configuration gives to a peer, and counts them. The store may be
    /// in foreign hands, and its list would make this service send prompts to any address.
    pub(super) fn retain_allowed(&mut self, peer: PeerId, pools: &mut [PoolReplicas]) {
        let region = self.name_of(peer);
        let networks = self.networks_of(region);
        let mut rejected = 0;
        for pool in pools {
            let told = pool.replicas.len();
            pool.replicas.retain(|address| is_within(networks, address));
            rejected += told - pool.replicas.len();
        }
        if rejected > 0 {
            tracing::warn!(
                region,
                rejected,
                "the record of a region names replicas outside its networks"
            );
            self.addresses_rejected += rejected as u64;
        }
    }

    pub(super) fn id_of(&self, region: &RegionName) -> Option<PeerId> {
        let mut peers = self.links.peers.iter();
        let (id, _) = peers.find(|(_, link)| link.config.name == region.as_str())?;
        Some(*id)
    }

    pub(super) fn name_of(&self, peer: PeerId) -> &str {
        let link = self.links.peers.get(&peer);
        link.map_or("?", |link| &link.config.name)
    }
}

/// Whether the address of a replica is in one of these networks.
fn is_within(networks: &[IpNet], address: &str) -> bool {
    let address = address.parse::<SocketAddr>();
    address.is_ok_and(|address| networks.iter().any(|net| net.contains(&address.ip())))
}
