//! The section `region`: this service among the regions.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_router::RegionRules;

use super::address::Address;
use super::errors::{Errors, SourceLocation};
use super::raw::{RawPeer, RawRegion};
use super::resolve::Unique;
use super::value::{Field, Item};

/// How many intervals of heartbeats may pass in silence before a peer counts as lost.
pub const HEARTBEATS_MISSED_MAX: u32 = 3;

/// The longest round trip between regions that is reckoned with.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(500);

/// What a service needs to know to take part in many regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionConfig {
    /// This region's name: a DNS label.
    pub name: String,
    /// Where the services of other regions, and the siblings of this one, reach the service.
    pub listen: SocketAddr,
    /// How links are protected.
    pub security: Security,
    /// The time between two heartbeats.
    pub heartbeat: Duration,
    /// The longest queue with which a region still takes guests (SkyLB's tau).
    pub queue_max: u32,
    /// Whether this region may adopt replicas of a region that died.
    pub adopt: bool,
    /// How long a region must have been healthy before it gets its replicas back.
    pub give_back_after: Duration,
    /// Where the peers' records are kept over a restart.
    pub state_file: Option<PathBuf>,
    /// The other regions; names, clusters and addresses are all different.
    pub peers: Vec<PeerConfig>,
    /// The other services of this region.
    pub siblings: Vec<Address>,
}

/// Another region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Its name: a DNS label, and not this region's own.
    pub name: String,
    /// Where its service listens.
    pub address: Address,
    /// The Envoy cluster that leads to it.
    pub cluster: String,
}

/// How links between services are protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Security {
    /// Mutual TLS.
    Tls(TlsFiles),
    /// Not at all: every address is a loopback one.
    Plaintext,
}

/// PEM files. They are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain of this region's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Who signs the certificates of all regions.
    pub ca: PathBuf,
}

impl RegionConfig {
    /// Takes relative paths as relative to `folder`.
    pub(super) fn resolve_paths(&mut self, folder: &Path) {
        let files = match &mut self.security {
            Security::Tls(tls) => vec![&mut tls.certificate, &mut tls.key, &mut tls.ca],
            Security::Plaintext => Vec::new(),
        };
        for file in files.into_iter().chain(&mut self.state_file) {
            *file = folder.join(&file);
        }
    }

    /// What each pool's routing core gets.
    #[must_use]
    pub fn rules(&self) -> RegionRules {
        RegionRules {
            queue_max: self.queue_max,
            // A report counts from when it was asked for: it is a round trip old when it comes.
            stale_after: self.silence_max() + ROUND_TRIP_MAX,
            share: !self.siblings.is_empty(),
        }
    }

    /// The silence after which a peer counts as lost.
    #[must_use]
    pub fn silence_max(&self) -> Duration {
        self.heartbeat * HEARTBEATS_MISSED_MAX
    }
}

/// What the section means. The result counts only when there were no mistakes.
pub(super) fn resolve(
    field: &Field<RawRegion>,
    clusters: &mut Unique,
    errors: &mut Errors,
) -> Option<RegionConfig> {
    let raw = &field.value;
    // Given as nothing, or absent: one region alone.
    field.location?;
    let name = raw.name.value.0.as_ref().map(|name| name.0.clone());
    if name.is_none() && !raw.name.wrong && !field.wrong {
        errors.add(
            field.location,
            "region.name",
            "this region's name must be given",
        );
    }
    let peers = peers(raw, name.as_deref(), clusters, errors);
    let siblings = siblings(raw, errors);
    let security = security(field, errors);
    if matches!(security, Some(Security::Plaintext)) {
        check_loopback(raw, errors);
    }
    Some(RegionConfig {
        name: name?,
        listen: raw.listen.value,
        security: security?,
        heartbeat: raw.heartbeat_ms.value.duration(),
        queue_max: u32::try_from(raw.queue_max.value.get()).unwrap_or(u32::MAX),
        adopt: raw.adopt.value,
        give_back_after: raw.give_back_after_ms.value.duration(),
        state_file: raw.state_file.value.0.clone().map(|path| path.0),
        peers,
        siblings,
    })
}

fn peers(
    raw: &RawRegion,
    own: Option<&str>,
    clusters: &mut Unique,
    errors: &mut Errors,
) -> Vec<PeerConfig> {
    let mut names = Unique::new("region");
    let mut addresses = Unique::new("address");
    if let Some(own) = own {
        names.claim(own, raw.name.location, "region.name", errors);
    }
    let peer = |peer: &Item<RawPeer>| {
        let option = |member: &str| format!("region.peers[{}].{member}", peer.index);
        let RawPeer {
            name,
            address,
            cluster,
        } = &peer.value;
        let mut missing = |member: &str, wrong: bool, what: &str| {
            if !wrong {
                errors.add(peer.location, option(member), what);
            }
        };
        if name.value.0.is_none() {
            missing(
                "name",
                name.wrong,
                "the name of the other region must be given",
            );
        }
        if address.value.0.is_none() {
            let what = "where its service listens (its `region.listen`) must be given";
            missing("address", address.wrong, what);
        }
        if let Some(address) = &address.value.0 {
            let location = peer.value.address.location;
            addresses.claim(&address.to_string(), location, &option("address"), errors);
        }
        let found = name.value.0.as_ref()?.0.clone();
        names.claim(&found, name.location, &option("name"), errors);
        let given = cluster.value.0.as_ref().map(|cluster| cluster.0.clone());
        let resolved = given.unwrap_or_else(|| format!("region-{found}"));
        if !cluster.wrong {
            let location = cluster.location.or(name.location);
            clusters.claim(&resolved, location, &option("cluster"), errors);
        }
        Some(PeerConfig {
            name: found,
            address: address.value.0.clone()?,
            cluster: resolved,
        })
    };
    raw.peers.value.0.iter().filter_map(peer).collect()
}

fn siblings(raw: &RawRegion, errors: &mut Errors) -> Vec<Address> {
    let mut taken = Unique::new("address");
    if raw.listen.location.is_some() && !raw.listen.wrong {
        let own = raw.listen.value.to_string();
        taken.claim(&own, raw.listen.location, "region.listen", errors);
    }
    for peer in &raw.peers.value.0 {
        if let Some(address) = &peer.value.address.value.0 {
            let option = format!("region.peers[{}].address", peer.index);
            // Peers that share one have been told so.
            let quiet = &mut Errors::default();
            taken.claim(
                &address.to_string(),
                peer.value.address.location,
                &option,
                quiet,
            );
        }
    }
    let sibling = |sibling: &Item<Address>| {
        let option = format!("region.siblings[{}]", sibling.index);
        taken.claim(
            &sibling.value.to_string(),
            sibling.location,
            &option,
            errors,
        );
        sibling.value.clone()
    };
    raw.siblings.value.0.iter().map(sibling).collect()
}

/// How links are protected; `None` when that is not said, or said wrongly.
fn security(field: &Field<RawRegion>, errors: &mut Errors) -> Option<Security> {
    let (tls, plaintext) = (&field.value.tls, &field.value.plaintext);
    if tls.wrong || plaintext.wrong || field.wrong {
        return None;
    }
    let Some(files) = &tls.value.0 else {
        if plaintext.value {
            return Some(Security::Plaintext);
        }
        let message = "must be given: other regions are trusted by their certificate \
             (or write `plaintext: true` where every address is a loopback one)";
        errors.add(field.location, "region.tls", message);
        return None;
    };
    let file = |name: &str, file: &Field<_>, errors: &mut Errors| {
        let super::value::Maybe(path): &super::value::Maybe<super::value::FilePath> = &file.value;
        if path.is_none() && !file.wrong {
            errors.add(tls.location, format!("region.tls.{name}"), "must be given");
        }
        path.clone().map(|path| path.0)
    };
    let certificate = file("certificate", &files.certificate, errors);
    let key = file("key", &files.key, errors);
    let ca = file("ca", &files.ca, errors);
    if plaintext.value {
        let message = "true, and `tls` is given as well: remove one of the two";
        errors.add(plaintext.location, "region.plaintext", message);
    }
    Some(Security::Tls(TlsFiles {
        certificate: certificate?,
        key: key?,
        ca: ca?,
    }))
}

/// Without TLS whoever reaches the port is believed, so nobody else may reach it.
fn check_loopback(raw: &RawRegion, errors: &mut Errors) {
    let mut check = |address: &Address, location: Option<SourceLocation>, option: String| {
        if !address.is_loopback() {
            let message = format!(
                "{address} is not a loopback address: with `plaintext: true` nothing may leave this machine (give `tls`)"
            );
            errors.add(location, option, message);
        }
    };
    if !raw.listen.wrong {
        let location = raw.listen.location.or(raw.plaintext.location);
        check(&raw.listen.value.into(), location, "region.listen".into());
    }
    for peer in &raw.peers.value.0 {
        let field = &peer.value.address;
        if let Some(address) = &field.value.0 {
            let option = format!("region.peers[{}].address", peer.index);
            check(address, field.location, option);
        }
    }
    for sibling in &raw.siblings.value.0 {
        let option = format!("region.siblings[{}]", sibling.index);
        check(&sibling.value, sibling.location, option);
    }
}
