//! The names of regions in certificates, and the regions that may call.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio_rustls::rustls::pki_types::ServerName;

/// The domain of the names in certificates. No service resolves it.
pub(super) const DOMAIN: &str = "isotherm";

/// The regions that may call; clones share them.
#[derive(Clone, Debug)]
pub(super) struct AllowedRegions(Arc<RwLock<BTreeSet<Arc<str>>>>);

impl AllowedRegions {
    pub(super) fn only(region: &str) -> Self {
        Self(Arc::new(RwLock::new([Arc::from(region)].into())))
    }

    pub(super) fn replace(&self, names: BTreeSet<Arc<str>>) {
        *self.0.write() = names;
    }

    pub(super) fn all(&self) -> Vec<Arc<str>> {
        self.0.read().iter().cloned().collect()
    }

    pub(super) fn get(&self, region: &str) -> Option<Arc<str>> {
        self.0.read().get(region).cloned()
    }
}

/// The DNS name of a region in its certificates.
/// Fails when the region's name is not a DNS label.
pub(super) fn region_dns_name(region: &str) -> Result<ServerName<'static>, String> {
    let name = ServerName::try_from(format!("{region}.{DOMAIN}"));
    let name = name.ok().filter(|_| !region.contains('.'));
    name.ok_or_else(|| {
        format!("`{region}` cannot be a region's name: it must be a DNS label, such as eu-west")
    })
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
}
