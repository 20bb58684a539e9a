//! Why a link is down.
//!
//! An operator does different things about the two kinds: a peer that cannot be reached is down or behind the network, a peer
//! that refuses is up and configured otherwise.

use std::fmt::Display;

use hyper::StatusCode;
use tokio_rustls::rustls;

use crate::http_client::{HttpError, causes};

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
    /// A peer that speaks another protocol, or another version of this protocol.
    pub(super) fn protocol(reason: impl Display) -> Self {
        Self::Refused(format!("protocol: {reason}"))
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

impl From<HttpError> for LinkError {
    /// A TLS error among the causes shows that the certificate has another authority or name, or has expired, or that the peer
    /// does not speak TLS.
    fn from(error: HttpError) -> Self {
        let HttpError::Connection(connection) = &error else {
            return Self::Unreachable(error.to_string());
        };
        let mut causes = causes(&**connection);
        let refusal = causes.find_map(|cause| {
            if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
                return Some(Self::Refused(format!("TLS: {tls}")));
            }
            let http = cause.downcast_ref::<hyper::Error>()?;
            http.is_parse().then(|| Self::protocol(http))
        });
        refusal.unwrap_or_else(|| Self::Unreachable(format!("the connection failed: {error}")))
    }
}
