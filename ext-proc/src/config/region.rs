//! The section `region`: this service among the services of other regions.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_router::RegionRules;

use super::address::Address;
use super::errors::{Reader, UniqueNames};
use super::options::{RawPeer, RawRegion, TlsFiles};

/// The number of heartbeats that a peer may miss before it counts as lost.
pub const HEARTBEATS_MISSED_MAX: u32 = 3;

/// The longest round trip between regions that the service allows for.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(500);

/// The configuration of a service that takes part in several regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionConfig {
    /// This region's name: a DNS label.
    pub name: String,
    /// The address on which services of other regions, and siblings, reach the service.
    pub listen: SocketAddr,
    /// The protection of links.
    pub security: Security,
    /// The time between two heartbeats.
    pub heartbeat: Duration,
    /// The longest queue with which this region still accepts forwarded requests (SkyLB's tau).
    pub queue_max: u32,
    /// Whether this region may adopt the replicas of a dead region.
    pub adopt: bool,
    /// How long a recovered region must be healthy before it gets its replicas back.
    pub give_back_after: Duration,
    /// A file that keeps the peers' replica lists over a restart.
    pub state_file: Option<PathBuf>,
    /// The other regions; names, clusters and addresses are all different.
    pub peers: Vec<PeerConfig>,
    /// The addresses of the other services of this region.
    pub siblings: Vec<Address>,
}

/// Another region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// The region's name: a DNS label, and not this region's own.
    pub name: String,
    /// The address of its service.
    pub address: Address,
    /// The Envoy cluster that leads to the region.
    pub cluster: String,
}

/// The protection of links between services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Security {
    /// Mutual TLS.
    Tls(TlsFiles),
    /// No protection: every address is a loopback address.
    Plaintext,
}

impl RegionConfig {
    /// Resolves relative paths against `folder`.
    pub(super) fn resolve_paths(&mut self, folder: &Path) {
        let files = match &mut self.security {
            Security::Tls(tls) => vec![&mut tls.certificate, &mut tls.key, &mut tls.ca],
            Security::Plaintext => Vec::new(),
        };
        for file in files.into_iter().chain(&mut self.state_file) {
            *file = folder.join(&file);
        }
    }

    /// Returns the rules of each pool's routing core.
    #[must_use]
    pub fn rules(&self) -> RegionRules {
        RegionRules {
            queue_max: self.queue_max,
            // The age of a report counts from its request: a report is a round trip old when it arrives.
            stale_after: self.silence_max() + ROUND_TRIP_MAX,
            share: !self.siblings.is_empty(),
        }
    }

    /// Returns the silence after which a peer counts as lost.
    #[must_use]
    pub fn silence_max(&self) -> Duration {
        self.heartbeat * HEARTBEATS_MISSED_MAX
    }
}

/// Resolves the section; `None` if it is absent. The result is meaningful only if `reader` has no mistakes.
pub(super) fn resolve(
    raw: RawRegion,
    clusters: &mut UniqueNames,
    reader: &mut Reader,
) -> Option<RegionConfig> {
    if !reader.is_given("region") || !reader.is_valid("region") {
        return None;
    }
    let peers = resolve_peers(&raw, clusters, reader);
    check_siblings(&raw, reader);
    let security = resolve_security(&raw, reader);
    if matches!(security, Some(Security::Plaintext)) {
        check_loopback(&raw, reader);
    }
    Some(RegionConfig {
        name: raw.name,
        listen: raw.listen,
        security: security?,
        heartbeat: raw.heartbeat,
        queue_max: raw.queue_max,
        adopt: raw.adopt,
        give_back_after: raw.give_back_after,
        state_file: raw.state_file,
        peers,
        siblings: raw
            .siblings
            .into_iter()
            .map(|(_, address)| address)
            .collect(),
    })
}

fn resolve_peers(
    raw: &RawRegion,
    clusters: &mut UniqueNames,
    reader: &mut Reader,
) -> Vec<PeerConfig> {
    let mut names = UniqueNames::new("region");
    let mut addresses = UniqueNames::new("address");
    names.claim(&raw.name, "region.name", reader);
    let resolve_peer = |(index, peer): &(usize, RawPeer)| {
        let option = |member: &str| format!("region.peers[{index}].{member}");
        if let Some(address) = &peer.address {
            addresses.claim(address, &option("address"), reader);
        }
        let given = peer.cluster.clone();
        let cluster = given.unwrap_or_else(|| format!("region-{}", peer.name));
        names.claim(&peer.name, &option("name"), reader);
        if reader.is_valid(&option("name")) {
            clusters.claim(&cluster, &option("cluster"), reader);
        }
        Some(PeerConfig {
            name: peer.name.clone(),
            address: peer.address.clone()?,
            cluster,
        })
    };
    raw.peers.iter().filter_map(resolve_peer).collect()
}

/// Checks that no sibling has the address of this service, of a peer, or of another sibling.
fn check_siblings(raw: &RawRegion, reader: &mut Reader) {
    let mut taken = UniqueNames::new("address");
    if reader.is_given("region.listen") {
        taken.claim(raw.listen, "region.listen", reader);
    }
    for (index, peer) in &raw.peers {
        if let Some(address) = &peer.address {
            // Two peers with one address are reported with the peers.
            taken.reserve(address, &format!("region.peers[{index}].address"), reader);
        }
    }
    for (index, sibling) in &raw.siblings {
        taken.claim(sibling, &format!("region.siblings[{index}]"), reader);
    }
}

/// Returns the protection of links; `None` if the section does not say, or says it wrongly.
fn resolve_security(raw: &RawRegion, reader: &mut Reader) -> Option<Security> {
    if !reader.is_valid("region.tls") || !reader.is_valid("region.plaintext") {
        return None;
    }
    match &raw.tls {
        Some(_) if raw.plaintext => {
            let message = "true, and `tls` is given as well: remove one of the two";
            reader.error("region.plaintext", message);
            None
        }
        Some(files) => Some(Security::Tls(files.clone())),
        None if raw.plaintext => Some(Security::Plaintext),
        None => {
            let message = "must be given: services trust each other by their certificates (or write \
                 `plaintext: true` if every address is a loopback address)";
            reader.error("region.tls", message);
            None
        }
    }
}

/// Checks that every address is a loopback address: without TLS the service trusts every client of its port.
fn check_loopback(raw: &RawRegion, reader: &mut Reader) {
    let mut check = |address: &Address, option: &str| {
        if !address.is_loopback() && reader.is_valid(option) {
            let message = format!(
                "{address} is not a loopback address: with `plaintext: true` no message may leave this machine (give `tls`)"
            );
            reader.error(option, message);
        }
    };
    check(&raw.listen.into(), "region.listen");
    for (index, peer) in &raw.peers {
        if let Some(address) = &peer.address {
            check(address, &format!("region.peers[{index}].address"));
        }
    }
    for (index, sibling) in &raw.siblings {
        check(sibling, &format!("region.siblings[{index}]"));
    }
}
