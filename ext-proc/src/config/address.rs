//! Addresses that the service dials: a host, which may be a name, and a port.

use std::fmt;
use std::net::SocketAddr;

/// The longest DNS name, in bytes.
const HOST_BYTES_MAX: usize = 253;

/// The address of another service. A name is resolved each time that the service dials it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// An IP address and port.
    Ip(SocketAddr),
    /// The name of a host, and a port.
    Name(String, u16),
}

impl Address {
    /// Returns the placeholder of a missing address.
    pub(super) fn unspecified() -> Self {
        SocketAddr::from(([0, 0, 0, 0], 0)).into()
    }

    /// Whether the host is a loopback address or `localhost`.
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Ip(address) => address.ip().is_loopback(),
            Self::Name(name, _) => name == "localhost",
        }
    }

    /// Parses `host:port`; the error says what is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let address = Self::from_text(text).ok_or_else(|| {
            format!(
                "`{text}` is not host:port, such as eu.example:9004, 10.0.0.1:9004 or [::1]:9004"
            )
        })?;
        match address {
            Self::Ip(ip) if ip.port() != 0 => Ok(address),
            Self::Name(_, port) if port != 0 => Ok(address),
            _ => Err(format!("`{text}`: port 0 reaches nothing")),
        }
    }

    fn from_text(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Some(address.into());
        }
        let (name, port) = text.rsplit_once(':')?;
        // An IP address that is cut short or has a number too large would be resolved as a name.
        let is_number = |byte: u8| byte.is_ascii_digit() || byte == b'.';
        let is_name = is_host_name(name) && !name.bytes().all(is_number);
        let port = port.parse().ok()?;
        is_name.then(|| Self::Name(name.to_ascii_lowercase(), port))
    }
}

pub(super) fn is_host_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=HOST_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_allowed)
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ip_addresses_are_distinguished() {
        for (text, loopback) in [
            ("eu.example:9004", false),
            ("localhost:1", true),
            ("127.0.0.9:9004", true),
            ("[::1]:9004", true),
            ("10.0.0.1:9004", false),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(address.is_loopback(), loopback, "{text}");
        }
    }

    #[test]
    fn anything_else_is_rejected() {
        for text in [
            "",
            "eu.example",
            "eu.example:",
            ":9004",
            "eu:70000",
            "10.0.0:9004",
            "10.0.0.256:1",
            "eu:0",
            "http://eu:1",
            "::1:9004",
        ] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }
}
