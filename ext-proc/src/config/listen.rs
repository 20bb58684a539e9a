//! Addresses that the service listens on for Envoy.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The longest path of a Unix socket on common systems, in bytes.
const UNIX_PATH_BYTES_MAX: usize = 107;

/// An address that the service listens on for Envoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An IP address and port; port 0 takes a free one.
    Tcp(SocketAddr),
    /// A Unix domain socket, written `unix:/path`.
    Unix(PathBuf),
}

impl Listen {
    /// Parses an address; the error says what is wrong.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix("unix:") else {
            return text.parse().map(Self::Tcp).map_err(|_| {
                format!("`{text}` is neither ip:port, such as 127.0.0.1:9002, nor unix:/path")
            });
        };
        if !path.starts_with('/') {
            return Err(format!("`{text}`: the path of a Unix socket begins with /"));
        }
        if path.len() > UNIX_PATH_BYTES_MAX {
            return Err(format!(
                "the path of a Unix socket has at most {UNIX_PATH_BYTES_MAX} bytes; this path has {}",
                path.len()
            ));
        }
        Ok(Self::Unix(path.into()))
    }
}

impl Listen {
    /// Whether hosts other than this one can reach the address.
    pub(super) fn is_beyond_loopback(&self) -> bool {
        matches!(self, Self::Tcp(address) if !address.ip().is_loopback())
    }
}

impl Default for Listen {
    fn default() -> Self {
        Self::Tcp((Ipv4Addr::LOCALHOST, 9002).into())
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
