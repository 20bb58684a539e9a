//! The messages of `peering.proto`, and the client and server of its service.

#[rustfmt::skip]
#[allow(missing_docs, clippy::allow_attributes_without_reason, reason = "generated from the .proto file")]
mod generated;

pub use generated::envelope::Payload;
pub use generated::placement::Target;
pub use generated::*;
