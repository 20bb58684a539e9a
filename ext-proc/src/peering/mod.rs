//! Links between services: of different regions (*peers*), and of one region (*siblings*).
//!
//! A service sends each message to another service as an HTTP/1.1 request over mutual TLS. It sends a ping every interval, and
//! placements and scaling shares in between; the response to a ping is a heartbeat. Two services call each other, and each
//! measures by its own clock. A [`Message`] is CBOR on the wire.
//!
//! - [`Credentials`] hold certificate, key and authority, and follow their files. The name in a certificate
//!   (`eu.isotherm`) is the only identity: see [`LocalIdentity`].
//! - [`LinkClient`] calls one service: it pings, connects again after a backoff, and reports why a ping failed
//!   ([`LinkError`]).
//! - [`LinkServer`] answers requests, and hands the messages of verified callers to an [`InboundHandler`].
//!
//! This module does not judge heartbeats: `crate::regions` drops a heartbeat that a newer one has overtaken.
//!
//! Everything is bounded: a message has at most [`MESSAGE_BYTES_MAX`], and each request, each queue and each number of
//! connections has a limit.

mod client;
mod codec;
mod credentials;
mod host;
mod identity;
mod link_error;
mod message;
mod server;

pub use client::{LinkClient, LinkEvent, LinkTimeouts, PeerEndpoint};
pub use codec::{MessageError, decode, encode};
pub use credentials::{CertificateState, Credentials};
pub(crate) use credentials::{authorities, certificates, key};
pub use host::host;
pub use identity::{LocalIdentity, TransportSecurity};
pub use link_error::LinkError;
pub use message::{Message, PATH, PoolShare, REGION_HEADER, ScalingShare};
pub use server::{InboundHandler, LinkServer};

/// The longest message that a service reads or sends, in bytes. A message of the longest placements has half of that.
pub const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
