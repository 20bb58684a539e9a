//! Where a replica listens, and how that is written.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Where a replica listens. Its text is made once, when it joins: each answer to Envoy names several, and to write an
/// address anew takes nearly as many instructions as to decide which one of a few replicas it is to be.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    addr: SocketAddr,
    text: Arc<str>,
}

impl Endpoint {
    /// The address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `ip:port`, as Envoy reads it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(addr: SocketAddr) -> Self {
        Self {
            addr,
            text: addr.to_string().into(),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
