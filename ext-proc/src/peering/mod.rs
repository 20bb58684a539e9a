//! Links between services: of different regions (*peers*), and of one region (*siblings*).
//!
//! Each service dials every other service and keeps one gRPC stream to it, over mutual TLS. The caller sends a ping every
//! interval, and placements; the callee replies to each ping with a heartbeat. So two services have two streams, and each
//! measures by its own clock. `wire/peering.proto` defines the protocol.
//!
//! - [`Credentials`] hold certificate, key and authority, and follow their files. The name in a certificate
//!   (`eu.isotherm`) is the only identity: see [`LocalIdentity`].
//! - [`Dialer`] keeps one outgoing link: it dials, redials after a backoff, and reports why an attempt failed
//!   ([`LinkError`]).
//! - [`Acceptor`] serves the incoming links and hands the messages of verified callers to a [`MessageHandler`].
//!
//! This module does not judge messages: each carries its session and number, and the core (`isotherm_regions`) drops what
//! is late, replayed or unsolicited.
//!
//! Everything is bounded. A link queues the newest ping and a few other messages; HTTP/2's flow control stops a link whose
//! reader is slow; a message has at most [`MESSAGE_BYTES_MAX`].

mod accept;
mod allowed_regions;
mod convert;
mod credentials;
mod dial;
mod identity;
mod link_error;
mod loopback;
mod message;
mod scaling_share;
mod send_queue;
mod timeouts;
mod transport;
pub mod wire;

use isotherm_regions::Session;

pub use accept::{Acceptor, Caller, MessageHandler};
pub(crate) use convert::{decode, encode};
pub use credentials::{Credentials, CredentialsError};
pub(crate) use credentials::{authorities, certificates, key};
pub use dial::{Dialer, LinkEvent, PeerEndpoint};
pub use identity::{LocalIdentity, TransportSecurity};
pub use link_error::LinkError;
pub use loopback::NotLoopback;
pub use message::Message;
pub use scaling_share::{PoolShare, ScalingShare};
pub use send_queue::SendError;
pub use timeouts::LinkTimeouts;

/// The longest message that a service reads or sends, in bytes. A message of the longest placements has half of that.
pub const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// HTTP/2's windows at both ends, in bytes. With windows smaller than a message, a long message takes many round trips, and the
/// pings behind it wait.
const WINDOW_BYTES: u32 = 2 * 1024 * 1024;

/// The version of the protocol, in each Hello.
pub const PROTOCOL_VERSION: u32 = 1;

/// The first message of each side.
fn hello(identity: &LocalIdentity, session: Session) -> wire::Envelope {
    wire::Envelope {
        session: session.0,
        payload: Some(wire::Payload::Hello(wire::Hello {
            protocol_version: PROTOCOL_VERSION,
            region: identity.region().to_owned(),
            incarnation: identity.incarnation(),
            software_version: env!("CARGO_PKG_VERSION").to_owned(),
        })),
    }
}
