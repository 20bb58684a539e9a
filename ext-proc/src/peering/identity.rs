//! Who this service is, and whom it knows.
//!
//! The only identity is a name in a certificate: the region `eu` is whoever shows one of the private authority for
//! `eu.isotherm`. Several services may show the same one: they are siblings.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use tokio_rustls::rustls::pki_types::ServerName;

use super::Credentials;

/// The domain of the names in certificates. It is never resolved.
const DOMAIN: &str = "isotherm";

/// What all links of a service share.
#[derive(Debug)]
pub struct LocalIdentity {
    region: Arc<str>,
    incarnation: u64,
    protection: TransportSecurity,
    known: Known,
}

/// How links are protected.
#[derive(Clone, Debug)]
pub enum TransportSecurity {
    /// Mutual TLS.
    Tls(Arc<Credentials>),
    /// Not at all, and only on loopback addresses. Who calls is believed.
    Plaintext,
}

/// A region's name that cannot be in a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` cannot be a region's name: it must be a DNS label, such as eu-west")]
pub struct NameError(pub String);

/// The DNS name that stands for a region in its certificates.
///
/// # Errors
///
/// When the region's name is not a DNS label.
pub fn region_dns_name(region: &str) -> Result<ServerName<'static>, NameError> {
    let wrong = || NameError(region.to_owned());
    if region.contains('.') {
        return Err(wrong());
    }
    ServerName::try_from(format!("{region}.{DOMAIN}")).map_err(|_| wrong())
}

impl LocalIdentity {
    /// The region `region`, of which `incarnation` is this start of this service.
    #[must_use]
    pub fn new(region: &str, incarnation: u64, protection: TransportSecurity) -> Self {
        let known = match &protection {
            TransportSecurity::Tls(credentials) => credentials.known().clone(),
            TransportSecurity::Plaintext => Known::only(region),
        };
        Self {
            region: region.into(),
            incarnation,
            protection,
            known,
        }
    }

    /// Knows these peers from now on, and no others: who else calls is turned away. The own region is always known.
    pub fn set_peers<'a>(&self, peers: impl IntoIterator<Item = &'a str>) {
        let mut names: BTreeSet<Arc<str>> = peers.into_iter().map(Arc::from).collect();
        names.insert(Arc::clone(&self.region));
        self.known.replace(names);
    }

    /// The region's name.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// The number of this start of this service.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// How links are protected.
    #[must_use]
    pub fn security(&self) -> &TransportSecurity {
        &self.protection
    }

    pub(super) fn known(&self) -> &Known {
        &self.known
    }
}

/// The regions that may call; clones share them.
#[derive(Clone, Debug)]
pub(super) struct Known(Arc<RwLock<BTreeSet<Arc<str>>>>);

impl Known {
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
    fn a_region_is_one_label() {
        for (region, right) in [
            ("eu", true),
            ("eu-west-1", true),
            ("", false),
            ("eu.west", false),
            ("*", false),
            ("e u", false),
        ] {
            assert_eq!(region_dns_name(region).is_ok(), right, "`{region}`");
        }
    }

    #[test]
    fn the_own_region_is_always_known() {
        let own = LocalIdentity::new("us", 1, TransportSecurity::Plaintext);
        assert!(own.known().get("us").is_some());
        own.set_peers(["eu", "asia"]);
        assert!(own.known().get("us").is_some() && own.known().get("eu").is_some());
        own.set_peers(["asia"]);
        assert!(own.known().get("us").is_some() && own.known().get("eu").is_none());
    }
}
