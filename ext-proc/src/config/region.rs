//! The section `region`: this service among the services of other regions.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use isotherm_router::{RegionRules, RouterConfig};

use super::address::Address;
use super::errors::{Reader, UniqueNames};
use super::kubernetes;
use super::options::RegionConfig;

/// The number of heartbeats that a peer may miss before it counts as lost.
pub const HEARTBEATS_MISSED_MAX: u32 = 3;

impl RegionConfig {
    /// Resolves relative paths against `folder`.
    pub(super) fn resolve_paths(&mut self, folder: &Path) {
        let tls = self.tls.iter_mut();
        let files = tls.flat_map(|tls| [&mut tls.certificate, &mut tls.key, &mut tls.ca]);
        let store = self.store.iter_mut();
        let store = store.filter_map(|store| store.tls.as_mut());
        let store = store.flat_map(|tls| [&mut tls.certificate, &mut tls.key, &mut tls.ca]);
        for file in files.chain(store) {
            *file = folder.join(&file);
        }
    }

    /// Returns the rules of each pool's routing core.
    pub fn rules(&self) -> RegionRules {
        let (forwarding, choice) = self.forwarding;
        RegionRules {
            forwarding,
            // The age of a report counts from its ping.
            stale_after: self.silence_max(),
            share: !self.siblings.is_empty() || self.siblings_service.is_some(),
            choice,
            ..RouterConfig::default().region
        }
    }

    /// Returns the silence after which a peer counts as lost.
    pub fn silence_max(&self) -> Duration {
        self.heartbeat * HEARTBEATS_MISSED_MAX
    }
}

/// Returns the name of the Envoy cluster that leads to a region.
pub(crate) fn peer_cluster(region: &str) -> String {
    format!("region-{region}")
}

/// Checks the rules that concern several options.
pub(super) fn check(region: &RegionConfig, clusters: &mut UniqueNames, reader: &mut Reader) {
    check_peers(region, clusters, reader);
    check_store(region, reader);
    check_siblings(region, reader);
    kubernetes::check_siblings(region, reader);
    check_protection(region, reader);
}

/// Checks that the names, addresses and clusters of peers are all different.
fn check_peers(region: &RegionConfig, clusters: &mut UniqueNames, reader: &mut Reader) {
    let mut names = UniqueNames::new("region");
    let mut addresses = UniqueNames::new("address");
    let mut known = BTreeSet::new();
    names.claim(&region.name, "region.name", reader);
    for (entry, peer) in reader.entries("region.peers", &region.peers) {
        let option = |member: &str| format!("{entry}.{member}");
        addresses.claim(&peer.address, &option("address"), reader);
        names.claim(&peer.name, &option("name"), reader);
        // A name that is taken is reported once.
        if known.insert(&peer.name) {
            clusters.claim(peer_cluster(&peer.name), &option("name"), reader);
        }
    }
}

/// Checks that the store is one of the kinds, and that this build has it.
fn check_store(region: &RegionConfig, reader: &mut Reader) {
    let Some(store) = &region.store else {
        return;
    };
    let option = "region.store";
    let are_valid = ["region.store.etcd", "region.store.kubernetes"];
    let are_valid = are_valid.iter().all(|member| reader.is_valid(member));
    match (store.etcd.is_empty(), &store.kubernetes) {
        (false, Some(_)) => reader.error(option, "give only one of `etcd` and `kubernetes`"),
        (true, None) if are_valid => {
            reader.error(option, "give one of `etcd` and `kubernetes`");
        }
        (true, _) | (false, None) => {}
    }
    if store.tls.is_some() && store.kubernetes.is_some() {
        let message = "belongs to `etcd`: the service reaches Kubernetes as its pod does";
        reader.error("region.store.tls", message);
    }
    if store.lease < region.silence_max() && reader.is_valid("region.store.lease_ms") {
        let message = format!(
            "must be at least {} (three times `heartbeat_ms`): until then a region counts as heard, and keeps its lease",
            region.silence_max().as_millis()
        );
        reader.error("region.store.lease_ms", &message);
    }
}

/// Checks that no sibling has the address of this service, of a peer, or of another sibling.
fn check_siblings(region: &RegionConfig, reader: &mut Reader) {
    let mut taken = UniqueNames::new("address");
    if reader.is_given("region.listen") {
        taken.claim(region.listen, "region.listen", reader);
    }
    for (entry, peer) in reader.entries("region.peers", &region.peers) {
        // Two peers with one address are reported with the peers.
        taken.reserve(&peer.address, &format!("{entry}.address"), reader);
    }
    for (entry, sibling) in reader.entries("region.siblings", &region.siblings) {
        taken.claim(sibling, &entry, reader);
    }
}

/// Checks that links have TLS, or that every address is a loopback address: without TLS the service trusts every client
/// of its port.
fn check_protection(region: &RegionConfig, reader: &mut Reader) {
    if region.tls.is_some() || !reader.is_valid("region.tls") {
        return;
    }
    let own = Address::from(region.listen);
    let peers = reader.entries("region.peers", &region.peers).into_iter();
    let peers = peers.map(|(entry, peer)| (format!("{entry}.address"), &peer.address));
    let siblings = reader.entries("region.siblings", &region.siblings);
    let open = [("region.listen".to_owned(), &own)]
        .into_iter()
        .chain(peers)
        .chain(siblings)
        .find(|(option, address)| !address.is_loopback() && reader.is_valid(option));
    if let Some((option, address)) = open {
        let message = format!(
            "must be given: {address} (`{option}`) is not a loopback address, and services trust each other by their certificates"
        );
        reader.error("region.tls", message);
    }
}
