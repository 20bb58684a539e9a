//! The name of a region in its certificates.

use tokio_rustls::rustls::pki_types::ServerName;

/// The name of a region in its certificates, which is the `Host` of a request to it. No service resolves it.
pub fn host(region: &str) -> String {
    format!("{region}.isotherm")
}

/// The name of a region in its certificates, as rustls takes it.
/// Fails when the region's name is not a DNS label.
pub(super) fn server_name(region: &str) -> Result<ServerName<'static>, String> {
    let name = ServerName::try_from(host(region));
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
            assert_eq!(server_name(region).is_ok(), is_valid, "`{region}`");
        }
    }
}
