//! Why a link is down.
//!
//! The difference matters: the replicas of a region that cannot be reached may be adopted, those of one that lives and
//! only must not be used may not. So whatever proves that somebody is there is [`Refused`], and a failure of this
//! machine's own proves nothing about the other ([`Local`]).

use std::error::Error as _;
use std::fmt;
use std::io;

/// Why there is no link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Nobody answers.
    #[error("unreachable: {0}")]
    Unreachable(UnreachableError),
    /// Somebody answers, and must not be used.
    #[error("refused: {0}")]
    Refused(RefusedError),
    /// It could not be tried.
    #[error("not tried: {0}")]
    Local(LocalError),
}

/// How nobody answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreachableError {
    /// No connection.
    #[error("no connection to {address}: {why}")]
    Connect {
        /// Where to.
        address: std::net::SocketAddr,
        /// What the system says.
        why: String,
    },
    /// An attempt took too long.
    #[error("{step} took longer than {after_ms} ms")]
    Timeout {
        /// What it was doing.
        step: ConnectPhase,
        /// The bound.
        after_ms: u64,
    },
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The other side ended the stream in good order: it is stopping.
    #[error("the other side closed the stream")]
    Closed,
    /// The other side said nothing.
    #[error("no answer for {after_ms} ms")]
    Silent {
        /// How long it was waited for.
        after_ms: u64,
    },
}

/// How somebody answers that must not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedError {
    /// TLS failed: a certificate of another authority, of another name, expired; or no TLS at all.
    #[error("TLS: {0}")]
    Tls(String),
    /// The service does not accept this one, or not what it says.
    #[error("the other side says {code:?}: {message}")]
    Status {
        /// The gRPC status.
        code: tonic::Code,
        /// In words.
        message: String,
    },
    /// It speaks another protocol, or another version of this one.
    #[error("protocol: {0}")]
    Protocol(String),
    /// It is another region.
    #[error("it says that it is the region `{said}`, not `{expected}`")]
    OtherRegion {
        /// What it says.
        said: String,
        /// Who was dialled.
        expected: String,
    },
    /// It is this very service.
    #[error("the address leads back to this service")]
    Itself,
}

/// How it could not be tried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocalError {
    /// The name leads nowhere, and never did.
    #[error("cannot resolve {name}: {why}")]
    Resolve {
        /// The name.
        name: String,
        /// What the system says.
        why: String,
    },
    /// This machine has no way out.
    #[error("no connection to {address}: {why}")]
    Connect {
        /// Where to.
        address: std::net::SocketAddr,
        /// What the system says.
        why: String,
    },
    /// An address that is not of this machine, without TLS.
    #[error("{0} is not a loopback address, and the link has no TLS")]
    NotLoopback(std::net::SocketAddr),
    /// The region's name cannot be one.
    #[error(transparent)]
    Name(#[from] super::NameError),
}

/// What an attempt does, in order.
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
    /// Whether somebody may live there: then nothing of it may be adopted. What is not known counts as alive.
    #[must_use]
    pub fn may_live(&self) -> bool {
        !matches!(self, Self::Unreachable(_))
    }

    /// A short name for metrics and tables.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::Refused(_) => "refused",
            Self::Local(_) => "local",
        }
    }

    /// Of the failures of several addresses, the one that says most: an address that somebody answers on outweighs
    /// those where nobody does.
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

    /// A TCP connection that did not come about.
    pub(super) fn connect(address: std::net::SocketAddr, error: &io::Error) -> Self {
        let why = error.to_string();
        if is_local(error) {
            Self::Local(LocalError::Connect { address, why })
        } else {
            Self::Unreachable(UnreachableError::Connect { address, why })
        }
    }

    pub(super) fn tls(error: &io::Error) -> Self {
        match tls_error(error) {
            Some(tls) => Self::Refused(RefusedError::Tls(tls.to_string())),
            None => Self::Unreachable(UnreachableError::Broken(error.to_string())),
        }
    }

    /// A gRPC status: the other's own word, or what became of the connection.
    pub(super) fn status(status: &tonic::Status) -> Self {
        use tonic::Code;
        if let Some(why) = foreign(status) {
            return Self::Refused(RefusedError::Protocol(why));
        }
        match status.code() {
            Code::Ok => Self::Unreachable(UnreachableError::Closed),
            // What a connection that breaks turns into, and a service that stops.
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

/// The TLS error in an error of the connection.
pub(super) fn tls_error(error: &io::Error) -> Option<&tokio_rustls::rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// What in an error shows that the other side speaks, and not HTTP/2.
fn foreign(status: &tonic::Status) -> Option<String> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = status.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let wrong = matches!(
                error.reason(),
                Some(
                    h2::Reason::PROTOCOL_ERROR
                        | h2::Reason::FRAME_SIZE_ERROR
                        | h2::Reason::HTTP_1_1_REQUIRED
                )
            );
            return wrong.then(|| error.to_string());
        }
        cause = error.source();
    }
    None
}

/// Whether it is this machine that fails: no route, no address, no more files. What comes from the other's side, or
/// from the way to it, is none of these.
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
