//! Why a link is down.
//!
//! An operator does different things about the two kinds: a peer that cannot be reached is down or behind the network, a peer
//! that refuses is up and configured otherwise.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::time::Duration;

use hyper::StatusCode;

/// The longest reason of a peer that is kept, in bytes.
const REASON_BYTES_MAX: usize = 256;

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

    /// A phase of an attempt that did not end in time.
    pub(super) fn timeout(phase: &str, after: Duration) -> Self {
        let after_ms = after.as_millis();
        Self::Unreachable(format!("{phase} took longer than {after_ms} ms"))
    }

    /// A peer that speaks another protocol, or another version of this protocol.
    pub(super) fn protocol(reason: impl Display) -> Self {
        Self::Refused(format!("protocol: {reason}"))
    }

    /// A connection that broke. A TLS error among the causes shows that the certificate has another authority or name, or has
    /// expired, or that the peer does not speak TLS.
    pub(super) fn broken(error: &(dyn Error + 'static)) -> Self {
        if let Some(tls) = tls_error(error) {
            return Self::Refused(format!("TLS: {tls}"));
        }
        if let Some(error) = error.downcast_ref::<hyper::Error>()
            && error.is_parse()
        {
            return Self::protocol(error);
        }
        let cause = causes(error).last().unwrap_or(error);
        Self::Unreachable(format!("the connection broke: {cause}"))
    }

    /// A response that is no success, with its text: the peer refuses the request, or has a fault of its own.
    pub(super) fn status(status: StatusCode, text: &[u8]) -> Self {
        let text = text.get(..REASON_BYTES_MAX).unwrap_or(text);
        let reason = format!("the other side says {status}: {}", text.escape_ascii());
        if status.is_client_error() {
            Self::Refused(reason)
        } else {
            Self::Unreachable(reason)
        }
    }
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// The TLS error among the causes of an error.
pub(super) fn tls_error<'a>(
    error: &'a (dyn Error + 'static),
) -> Option<&'a tokio_rustls::rustls::Error> {
    causes(error).find_map(|error| error.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref())
}
