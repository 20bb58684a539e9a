//! Why a link is down.
//!
//! The kinds of errors have different consequences: this service may adopt the replicas of an unreachable region, but not
//! those of a region that is alive and refuses the link. So every sign of life is a [`RefusedError`], and a failure of this
//! machine ([`LocalError`]) says nothing about the peer.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::net::SocketAddr;

use super::NameError;

/// Why a link is down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// No service answers.
    #[error("unreachable: {0}")]
    Unreachable(UnreachableError),
    /// A service answers, and this service must not use it.
    #[error("refused: {0}")]
    Refused(RefusedError),
    /// This machine could not try.
    #[error("not tried: {0}")]
    Local(LocalError),
}

/// Why a peer is unreachable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreachableError {
    /// No TCP connection.
    #[error("no connection to {address}: {why}")]
    Connect {
        /// Address of the peer.
        address: SocketAddr,
        /// The system's error.
        why: String,
    },
    /// An attempt took too long.
    #[error("{phase} took longer than {after_ms} ms")]
    Timeout {
        /// The phase that did not end.
        phase: ConnectPhase,
        /// The bound on the attempt.
        after_ms: u64,
    },
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The peer ended the stream in good order: it is stopping.
    #[error("the other side closed the stream")]
    Closed,
    /// The peer did not reply.
    #[error("no answer for {after_ms} ms")]
    Silent {
        /// The bound on the peer's silence.
        after_ms: u64,
    },
}

/// Why this service must not use a peer that answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedError {
    /// TLS failed: the certificate has another authority or name, or has expired; or the peer does not speak TLS.
    #[error("TLS: {0}")]
    Tls(String),
    /// The peer refused this service or its message.
    #[error("the other side says {code:?}: {message}")]
    Status {
        /// The gRPC status.
        code: tonic::Code,
        /// Message of the status.
        message: String,
    },
    /// The peer speaks another protocol, or another version of this protocol.
    #[error("protocol: {0}")]
    Protocol(String),
    /// The peer belongs to another region than this service dialled.
    #[error("it says that it is the region `{actual}`, not `{expected}`")]
    OtherRegion {
        /// The region in the peer's Hello.
        actual: String,
        /// The region that this service dialled.
        expected: String,
    },
    /// The peer is this service itself.
    #[error("the address leads back to this service")]
    Itself,
}

/// Why this machine could not try.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocalError {
    /// The name does not resolve, and never did.
    #[error("cannot resolve {name}: {why}")]
    Resolve {
        /// The name.
        name: String,
        /// The system's error.
        why: String,
    },
    /// This machine cannot open a connection.
    #[error("no connection to {address}: {why}")]
    Connect {
        /// Address of the peer.
        address: SocketAddr,
        /// The system's error.
        why: String,
    },
    /// The address is not a loopback address, and the link has no TLS.
    #[error("{0} is not a loopback address, and the link has no TLS")]
    NotLoopback(SocketAddr),
    /// The region's name cannot be in a certificate.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// The phases of an attempt, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectPhase {
    /// Opening a TCP connection.
    Connect,
    /// The TLS handshake.
    Tls,
    /// HTTP/2 and the Hello.
    Hello,
}

impl fmt::Display for ConnectPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connecting",
            Self::Tls => "the TLS handshake",
            Self::Hello => "the other's Hello",
        })
    }
}

impl LinkError {
    /// Of the errors of two addresses, the one with more information about the peer.
    pub(super) fn or(self, other: Self) -> Self {
        let weight = |error: &Self| match error {
            Self::Unreachable(_) => 0,
            Self::Local(_) => 1,
            Self::Refused(_) => 2,
        };
        if weight(&other) > weight(&self) {
            other
        } else {
            self
        }
    }

    /// A failure to open a TCP connection.
    pub(super) fn connect(address: SocketAddr, error: &io::Error) -> Self {
        let why = error.to_string();
        if is_local(error) {
            Self::Local(LocalError::Connect { address, why })
        } else {
            Self::Unreachable(UnreachableError::Connect { address, why })
        }
    }

    /// A failure of the TLS handshake.
    pub(super) fn tls(error: &io::Error) -> Self {
        match tls_error(error) {
            Some(tls) => Self::Refused(RefusedError::Tls(tls.to_string())),
            None => Self::Unreachable(UnreachableError::Broken(error.to_string())),
        }
    }

    /// A gRPC status: the peer's own, or what tonic makes of a broken connection.
    pub(super) fn status(status: &tonic::Status) -> Self {
        use tonic::Code;
        if let Some(why) = protocol_error(status) {
            return Self::Refused(RefusedError::Protocol(why));
        }
        match status.code() {
            Code::Ok => Self::Unreachable(UnreachableError::Closed),
            // A connection that breaks ends in one of these, and so does a service that stops.
            Code::Unavailable
            | Code::Cancelled
            | Code::Unknown
            | Code::Internal
            | Code::DeadlineExceeded => {
                Self::Unreachable(UnreachableError::Broken(status.message().to_owned()))
            }
            code => Self::Refused(RefusedError::Status {
                code,
                message: status.message().to_owned(),
            }),
        }
    }
}

/// The TLS error inside an error of the connection.
pub(super) fn tls_error(error: &io::Error) -> Option<&tokio_rustls::rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// The HTTP/2 error that shows that the peer answers, in another protocol.
fn protocol_error(status: &tonic::Status) -> Option<String> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = status.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let is_protocol_error = matches!(
                error.reason(),
                Some(
                    h2::Reason::PROTOCOL_ERROR
                        | h2::Reason::FRAME_SIZE_ERROR
                        | h2::Reason::HTTP_1_1_REQUIRED
                )
            );
            return is_protocol_error.then(|| error.to_string());
        }
        cause = error.source();
    }
    None
}

/// Whether this machine failed: it has no route, no address or no more files. Neither the peer nor the network between
/// causes such an error.
fn is_local(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(
        error.kind(),
        io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::AddrNotAvailable
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::OutOfMemory
    ) || matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}
