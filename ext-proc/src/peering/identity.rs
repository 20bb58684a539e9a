//! This service's identity, and the regions that may call it.
//!
//! The name in a certificate is the only identity: a service belongs to the region `eu` when the private authority has
//! signed its certificate for `eu.isotherm`. Services with the same name are siblings.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::server::ParsedCertificate;

use super::host::server_name;
use super::{CertificateState, Credentials};

/// The identity of this service, which all its connections share.
#[derive(Debug)]
pub struct LocalIdentity {
    region: Arc<str>,
    incarnation: u64,
    security: TransportSecurity,
    /// The regions that may call.
    allowed: RwLock<BTreeSet<Arc<str>>>,
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
        let region: Arc<str> = region.into();
        Self {
            allowed: RwLock::new([Arc::clone(&region)].into()),
            region,
            incarnation,
            security,
        }
    }

    /// Allows calls of these peers and of this service's own region, and of no other region.
    pub fn set_peers<'a>(&self, peers: impl IntoIterator<Item = &'a str>) {
        let mut names: BTreeSet<Arc<str>> = peers.into_iter().map(Arc::from).collect();
        names.insert(Arc::clone(&self.region));
        *self.allowed.write() = names;
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

    /// State of the certificate; the default without TLS.
    pub fn certificate(&self) -> CertificateState {
        match &self.security {
            TransportSecurity::Tls(credentials) => credentials.state(),
            TransportSecurity::Plaintext => CertificateState::default(),
        }
    }

    /// The allowed region with this name.
    pub(super) fn allowed(&self, region: &str) -> Option<Arc<str>> {
        self.allowed.read().get(region).cloned()
    }

    /// The one allowed region that a certificate is valid for; `None` when it is valid for none or for several. A wildcard
    /// (`*.isotherm`) does not identify the caller.
    pub(super) fn region_of(&self, certificate: &CertificateDer<'_>) -> Option<Arc<str>> {
        let parsed = ParsedCertificate::try_from(certificate).ok()?;
        let is_valid_for = |region: &&Arc<str>| {
            server_name(region).is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
        };
        let allowed = self.allowed.read();
        let mut found = allowed.iter().filter(is_valid_for);
        match (found.next(), found.next()) {
            (Some(region), None) => Some(Arc::clone(region)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_region_is_always_allowed() {
        let identity = LocalIdentity::new("us", 1, TransportSecurity::Plaintext);
        let is_allowed = |region| identity.allowed(region).is_some();
        assert!(is_allowed("us"));
        identity.set_peers(["eu", "asia"]);
        assert!(is_allowed("us") && is_allowed("eu"));
        identity.set_peers(["asia"]);
        assert!(is_allowed("us") && !is_allowed("eu"));
    }
}
