//! The address of a replica and its text form.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// The address of a replica. The text is formatted once, when the replica joins: each reply to Envoy names several
/// replicas, and formatting an address costs nearly as many instructions as a decision in a small pool.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    addr: SocketAddr,
    text: Arc<str>,
}

impl Endpoint {
    /// The socket address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address as `ip:port`, the form that Envoy reads.
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
