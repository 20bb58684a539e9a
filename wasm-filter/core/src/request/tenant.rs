//! The tenant of a request: the first source with a value.
//!
//! Only what authentication sets may name a tenant. So bodies and cookies are no sources, and the filter reads no header of the client
//! that the configuration does not name.

use isotherm_fingerprint::{names, tenant};

use crate::RequestConfig;
use crate::config::TenantSource;
use crate::headers::{self, Headers};

/// The header value of the tenant. `metadata` looks up a property of the host.
pub(super) fn find(
    config: &RequestConfig,
    headers: &Headers,
    metadata: impl Fn(&[&str]) -> Option<Vec<u8>>,
) -> Option<String> {
    if config.trusted_origin
        && let Some(value) = headers::get(headers, names::TENANT)
        && tenant::is_valid(value)
    {
        return str::from_utf8(value).ok().map(str::to_owned);
    }
    config
        .tenant_sources
        .iter()
        .find_map(|source| match source {
            TenantSource::Header(name) => config.tenant_value(headers::get(headers, name)?),
            TenantSource::Metadata(path) => config.tenant_value(&metadata(&path.property())?),
        })
}
