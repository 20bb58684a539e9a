//! Addresses that the service dials: a host, which may be a name, and a port.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::names::HostName;
use super::value::Parsed;

/// Where another service listens. A name is resolved each time that it is dialled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    host: Host,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Host {
    Ip(IpAddr),
    Name(String),
}

impl Address {
    /// The address, where it is written as one and not as a name.
    #[must_use]
    pub fn ip(&self) -> Option<SocketAddr> {
        match self.host {
            Host::Ip(ip) => Some(SocketAddr::new(ip, self.port)),
            Host::Name(_) => None,
        }
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is this machine, as far as one can tell without asking a name server.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Ip(ip) => ip.is_loopback(),
            Host::Name(name) => name == "localhost",
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: Host::Ip(address.ip()),
            port: address.port(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(ip) => SocketAddr::new(*ip, self.port).fmt(f),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

impl Parsed for Address {
    fn accepts() -> String {
        "host:port".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not host:port, such as eu.example:9004, 10.0.0.1:9004 or [::1]:9004"
            )
        };
        let address = match text.parse::<SocketAddr>() {
            Ok(address) => Self::from(address),
            Err(_) => {
                let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
                let HostName(name) = HostName::parse(host).map_err(|_| wrong())?;
                let port = port.parse().map_err(|_| wrong())?;
                // An address that is cut short or has a number too large would be looked up as a name.
                if name
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || byte == b'.')
                {
                    return Err(wrong());
                }
                Self {
                    host: Host::Name(name.to_ascii_lowercase()),
                    port,
                }
            }
        };
        if address.port == 0 {
            return Err(format!("`{text}`: port 0 reaches nothing"));
        }
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_told_apart() {
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
    fn what_is_neither_is_refused() {
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
