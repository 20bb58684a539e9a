//! Why a link is down.
//!
//! An operator does different things about the two kinds: a peer that cannot be reached is down or behind the network, a peer
//! that refuses is up and configured otherwise.

use std::error::Error as _;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tonic::Code;

/// Why a link is down. Each kind holds the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// No service answers.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// A service answers, and this service must not use it.
    #[error("refused: {0}")]
    Refused(String),
}

impl LinkError {
    /// A name without an address.
    pub(super) fn resolve(name: &str, reason: &dyn Display) -> Self {
        Self::Unreachable(format!("cannot resolve {name}: {reason}"))
    }

    /// A failure to open a TCP connection.
    pub(super) fn connect(address: SocketAddr, error: &io::Error) -> Self {
        Self::Unreachable(format!("no connection to {address}: {error}"))
    }

    /// A phase of an attempt that did not end in time.
    pub(super) fn timeout(phase: &str, after: Duration) -> Self {
        let after_ms = after.as_millis();
        Self::Unreachable(format!("{phase} took longer than {after_ms} ms"))
    }

    pub(super) fn broken(reason: impl Display) -> Self {
        Self::Unreachable(format!("the connection broke: {reason}"))
    }

    /// The end of a stream in good order: the peer is stopping.
    pub(super) fn closed() -> Self {
        Self::Unreachable("the other side closed the stream".into())
    }

    /// A TLS error: the certificate has another authority or name, or has expired; or the peer does not speak TLS.
    pub(super) fn tls(reason: impl Display) -> Self {
        Self::Refused(format!("TLS: {reason}"))
    }

    /// A peer that speaks another protocol, or another version of this protocol.
    pub(super) fn protocol(reason: impl Display) -> Self {
        Self::Refused(format!("protocol: {reason}"))
    }

    pub(super) fn handshake(error: &io::Error) -> Self {
        tls_error(error).map_or_else(|| Self::broken(error), Self::tls)
    }

    /// A gRPC status: the peer's own, or what tonic makes of a broken connection.
    pub(super) fn status(status: &tonic::Status) -> Self {
        if let Some(reason) = protocol_error(status) {
            return Self::protocol(reason);
        }
        match status.code() {
            Code::Ok => Self::closed(),
            // A connection that breaks ends in one of these, and so does a service that stops.
            Code::Unavailable
            | Code::Cancelled
            | Code::Unknown
            | Code::Internal
            | Code::DeadlineExceeded => Self::broken(status.message()),
            code => Self::Refused(format!(
                "the other side says {code:?}: {}",
                status.message()
            )),
        }
    }
}

/// The TLS error inside an error of the connection.
pub(super) fn tls_error(error: &io::Error) -> Option<&tokio_rustls::rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// The HTTP/2 error that shows that the peer answers, in another protocol.
fn protocol_error(status: &tonic::Status) -> Option<&h2::Error> {
    let causes = std::iter::successors(status.source(), |&error| error.source());
    let mut errors = causes.filter_map(|error| error.downcast_ref::<h2::Error>());
    errors.next().filter(|error| {
        matches!(
            error.reason(),
            Some(
                h2::Reason::PROTOCOL_ERROR
                    | h2::Reason::FRAME_SIZE_ERROR
                    | h2::Reason::HTTP_1_1_REQUIRED
            )
        )
    })
}
