//! The messages of `peering.proto`, and the names of the request that carries them.

use super::allowed_regions::DOMAIN;

#[rustfmt::skip]
#[allow(missing_docs, clippy::allow_attributes_without_reason, reason = "generated from the .proto file")]
mod generated;

pub use generated::envelope::Payload;
pub use generated::placement::Target;
pub use generated::*;

/// Path of every request, with the version of the protocol.
pub const PATH: &str = "/isotherm/peering/v1";
/// The `Host` of a request to a region: the name in its certificates.
pub fn host(region: &str) -> String {
    format!("{region}.{DOMAIN}")
}

/// Header with the caller's region, which counts without TLS only.
pub const REGION_HEADER: &str = "x-isotherm-region";
/// Header with a number that is new with each start of the caller.
pub const INCARNATION_HEADER: &str = "x-isotherm-incarnation";
