//! The wire between services: of different regions (*peers*), and of one region (*siblings*).
//!
//! Each service dials every other one and keeps one gRPC stream to it, over mutual TLS. On the stream that it dialled it
//! asks (a [`Message::Ping`] every interval) and tells (records, placements); the other side answers. So there are two
//! streams between any two services, and each measures by its own clock.
//!
//! - [`Credentials`] are the certificate, key and authority by file; they follow the files. The name in a certificate
//!   (`eu.isotherm`) is the only identity there is: see [`LocalIdentity`].
//! - [`Dialer`] keeps one link: it dials, dials again, and says why it could not ([`Down`]).
//! - [`Acceptor`] is the other end: it hands what verified callers say to an [`Answer`].
//!
//! What is decided by what is said is none of this module's business: messages carry their session and number, and it is
//! the core (`isotherm_regions`) that drops what is late, replayed or not asked for.
//!
//! Everything is bounded: a link keeps the newest ping and a few messages, and a reader that is slow stops its link by
//! HTTP/2's flow control; a message has at most [`MESSAGE_BYTES_MAX`].

mod accept;
mod convert;
mod credentials;
mod dial;
mod identity;
mod link_error;
mod loopback;
mod message;
mod send_queue;
mod timeouts;
mod transport;
pub mod wire;

use isotherm_regions::Session;

pub use accept::{Acceptor, Caller, MessageHandler};
pub use credentials::{Credentials, CredentialsError, ReloadResult};
pub use dial::{Dialer, KeyedLinkEvent, LinkEvent, PeerEndpoint};
pub use identity::{LocalIdentity, NameError, TransportSecurity, region_dns_name};
pub use link_error::{ConnectPhase, LinkError, LocalError, RefusedError, UnreachableError};
pub use loopback::{NotLoopback, check_loopback};
pub use message::{Message, NamedPlacement, NamedTarget};
pub use send_queue::SendError;
pub use timeouts::LinkTimeouts;

/// The longest message that is read or sent, in bytes. A record of ten thousand addresses has about 300 KB.
pub const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// The version of the protocol, said in each Hello.
pub const PROTOCOL: u32 = 1;

/// The service and its method, as gRPC knows them.
const SERVICE: &str = "isotherm.peering.v1.Peering";
const METHOD: &str = "/isotherm.peering.v1.Peering/Converse";

/// The first message of each side.
fn hello(own: &LocalIdentity, session: Session) -> wire::Envelope {
    wire::Envelope {
        session: session.0,
        payload: Some(wire::Payload::Hello(wire::Hello {
            protocol: PROTOCOL,
            region: own.region().to_owned(),
            incarnation: own.incarnation(),
            software: env!("CARGO_PKG_VERSION").to_owned(),
        })),
    }
}
