//! This service's identity, and the regions that may call it.
//!
//! The name in a certificate is the only identity: a service belongs to the region `eu` when the private authority has
//! signed its certificate for `eu.isotherm`. Services with the same name are siblings.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Credentials;
use super::allowed_regions::AllowedRegions;

/// The identity of this service, which all its connections share.
#[derive(Debug)]
pub struct LocalIdentity {
    region: Arc<str>,
    incarnation: u64,
    security: TransportSecurity,
    allowed: AllowedRegions,
}

/// The protection of links.
#[derive(Clone, Debug)]
pub enum TransportSecurity {
    /// Mutual TLS.
    Tls(Arc<Credentials>),
    /// No protection, on loopback addresses only. The service trusts the region that a caller names.
    Plaintext,
}

impl LocalIdentity {
    /// A service of `region`; `incarnation` is the number of this start of it.
    pub fn new(region: &str, incarnation: u64, security: TransportSecurity) -> Self {
        let allowed = match &security {
            TransportSecurity::Tls(credentials) => credentials.allowed().clone(),
            TransportSecurity::Plaintext => AllowedRegions::only(region),
        };
        Self {
            region: region.into(),
            incarnation,
            security,
            allowed,
        }
    }

    /// Allows calls of these peers and of this service's own region, and of no other region.
    pub fn set_peers<'a>(&self, peers: impl IntoIterator<Item = &'a str>) {
        let mut names: BTreeSet<Arc<str>> = peers.into_iter().map(Arc::from).collect();
        names.insert(Arc::clone(&self.region));
        self.allowed.replace(names);
    }

    /// Name of the region.
    pub fn region(&self) -> &str {
        &self.region
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The protection of links.
    pub fn security(&self) -> &TransportSecurity {
        &self.security
    }

    pub(super) fn allowed(&self) -> &AllowedRegions {
        &self.allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_region_is_always_allowed() {
        let identity = LocalIdentity::new("us", 1, TransportSecurity::Plaintext);
        let is_allowed = |region| identity.allowed().get(region).is_some();
        assert!(is_allowed("us"));
        identity.set_peers(["eu", "asia"]);
        assert!(is_allowed("us") && is_allowed("eu"));
        identity.set_peers(["asia"]);
        assert!(is_allowed("us") && !is_allowed("eu"));
    }
}
