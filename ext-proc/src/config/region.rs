//! The section `region`: this service among the services of other regions.

use std::path::Path;
use std::time::Duration;

use isotherm_router::RegionRules;

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
        let etcd = self
            .store
            .iter_mut()
            .filter_map(|store| store.etcd.as_mut()?.tls.as_mut());
        let etcd = etcd.flat_map(|tls| [&mut tls.certificate, &mut tls.key, &mut tls.ca]);
        for file in files.chain(etcd) {
            *file = folder.join(&file);
        }
    }

    /// Returns the rules of each pool's routing core.
    pub fn rules(&self) -> RegionRules {
        RegionRules {
            forwarding: self.forwarding,
            queue_max: self.queue_max,
            // The age of a report counts from its ping.
            stale_after: self.silence_max(),
            share: !self.siblings.is_empty() || self.siblings_service.is_some(),
            choice: self.choice,
        }
    }

    /// Returns the silence after which a peer counts as lost.
    pub fn silence_max(&self) -> Duration {
        self.heartbeat * HEARTBEATS_MISSED_MAX
    }
}

/// Fills in the peers' clusters, and checks the rules that concern several options.
pub(super) fn resolve(region: &mut RegionConfig, clusters: &mut UniqueNames, reader: &mut Reader) {
    for peer in &mut region.peers {
        if peer.cluster.is_empty() {
            peer.cluster = format!("region-{}", peer.name);
        }
    }
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
    names.claim(&region.name, "region.name", reader);
    for (entry, peer) in reader.entries("region.peers", &region.peers) {
        let option = |member: &str| format!("{entry}.{member}");
        addresses.claim(&peer.address, &option("address"), reader);
        names.claim(&peer.name, &option("name"), reader);
        // An invalid name gives no cluster.
        if reader.is_given(&option("cluster")) || reader.is_valid(&option("name")) {
            clusters.claim(&peer.cluster, &option("cluster"), reader);
        }
    }
}

/// Checks that the store is one of the kinds, and that this build has it.
fn check_store(region: &RegionConfig, reader: &mut Reader) {
    let Some(store) = &region.store else {
        return;
    };
    let option = "region.store";
    let members = ["region.store.etcd", "region.store.kubernetes"];
    match (&store.etcd, &store.kubernetes) {
        (Some(_), Some(_)) => reader.error(option, "give only one of `etcd` and `kubernetes`"),
        (None, None) if members.iter().all(|member| reader.is_valid(member)) => {
            reader.error(option, "give one of `etcd` and `kubernetes`");
        }
        (None, Some(_)) | (Some(_), None) | (None, None) => {}
    }
    if store.lease < region.silence_max() && reader.is_valid("region.store.lease_ms") {
        let message = format!(
            "must be at least {} (three times `heartbeat_ms`): until then a region counts as heard, and keeps its lease",
            region.silence_max().as_millis()
        );
        reader.error("region.store.lease_ms", &message);
    }
    let endpoints = "region.store.etcd.endpoints";
    if store
        .etcd
        .as_ref()
        .is_some_and(|etcd| etcd.endpoints.is_empty())
        && reader.is_valid(endpoints)
    {
        reader.error(endpoints, "must name at least one address");
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
    if !reader.is_valid("region.tls") || !reader.is_valid("region.plaintext") {
        return;
    }
    if region.tls.is_some() {
        if region.plaintext {
            let message = "true, and `tls` is given as well: remove one of the two";
            reader.error("region.plaintext", message);
        }
        return;
    }
    if !region.plaintext {
        let message = "must be given: services trust each other by their certificates (or write \
             `plaintext: true` if every address is a loopback address)";
        return reader.error("region.tls", message);
    }
    let own = Address::from(region.listen);
    let peers = reader.entries("region.peers", &region.peers).into_iter();
    let peers = peers.map(|(entry, peer)| (format!("{entry}.address"), &peer.address));
    let siblings = reader.entries("region.siblings", &region.siblings);
    for (option, address) in [("region.listen".to_owned(), &own)]
        .into_iter()
        .chain(peers)
        .chain(siblings)
    {
        if !address.is_loopback() && reader.is_valid(&option) {
            let message = format!(
                "{address} is not a loopback address: with `plaintext: true` no message may leave this machine (give `tls`)"
            );
            reader.error(&option, message);
        }
    }
}
