//! This service's identity, and the regions that may call it.
//!
//! The name in a certificate is the only identity: a service belongs to the region `eu` when the private authority has
//! signed its certificate for `eu.isotherm`. Services with the same name are siblings.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use tokio_rustls::rustls::pki_types::ServerName;

use super::Credentials;

/// The domain of the names in certificates. No service resolves it.
const DOMAIN: &str = "isotherm";

/// The identity of this service, which all its links share.
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
    /// No protection, on loopback addresses only. The service trusts the region in a caller's Hello.
    Plaintext,
}

/// A region's name that cannot be in a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` cannot be a region's name: it must be a DNS label, such as eu-west")]
pub struct NameError(pub String);

/// The DNS name of a region in its certificates.
///
/// # Errors
///
/// When the region's name is not a DNS label.
pub(super) fn region_dns_name(region: &str) -> Result<ServerName<'static>, NameError> {
    let error = || NameError(region.to_owned());
    if region.contains('.') {
        return Err(error());
    }
    ServerName::try_from(format!("{region}.{DOMAIN}")).map_err(|_| error())
}

impl LocalIdentity {
    /// A service of `region`; `incarnation` is the number of this start of it.
    #[must_use]
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
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The protection of links.
    #[must_use]
    pub fn security(&self) -> &TransportSecurity {
        &self.security
    }

    pub(super) fn allowed(&self) -> &AllowedRegions {
        &self.allowed
    }
}

/// The regions that may call; clones share them.
#[derive(Clone, Debug)]
pub(super) struct AllowedRegions(Arc<RwLock<BTreeSet<Arc<str>>>>);

impl AllowedRegions {
    pub(super) fn only(region: &str) -> Self {
        Self(Arc::new(RwLock::new([Arc::from(region)].into())))
    }

    fn replace(&self, names: BTreeSet<Arc<str>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    pub(super) fn all(&self) -> Vec<Arc<str>> {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names.iter().cloned().collect()
    }

    pub(super) fn get(&self, region: &str) -> Option<Arc<str>> {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names.get(region).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_name_is_one_dns_label() {
        for (region, is_valid) in [
            ("eu", true),
            ("eu-west-1", true),
            ("", false),
            ("eu.west", false),
            ("*", false),
            ("e u", false),
        ] {
            assert_eq!(region_dns_name(region).is_ok(), is_valid, "`{region}`");
        }
    }

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
