//! The messages of `peering.proto`, and the names of its service.

#[rustfmt::skip]
#[allow(missing_docs, clippy::allow_attributes_without_reason, reason = "generated from the .proto file")]
mod generated;

pub use generated::envelope::Payload;
pub use generated::placement::Target;
pub use generated::*;

/// The gRPC service.
pub const SERVICE: &str = "isotherm.peering.v1.Peering";
/// The only method of [`SERVICE`]; both directions are streams.
pub const METHOD: &str = "StreamMessages";
/// The HTTP path of [`METHOD`].
pub const PATH: &str = "/isotherm.peering.v1.Peering/StreamMessages";
