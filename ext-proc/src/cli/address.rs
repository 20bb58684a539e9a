//! Addresses as operators type them: names and URLs as well as IP addresses.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context as _, bail};
use tokio::net::lookup_host;

use crate::config::Address;

/// Parses the address of an admin interface: `host:port`, or an `http://` URL of it.
pub(super) fn parse_admin(text: &str) -> Result<Address, String> {
    if text.starts_with("https://") {
        return Err(
            "the admin interface has no TLS: give host:port of the service's own machine"
                .to_owned(),
        );
    }
    Address::parse(without_scheme(text))
}

/// Parses the address of a replica: `host:port`, or an `http://` URL of it.
pub(super) fn parse_replica(text: &str) -> Result<Address, String> {
    if text.starts_with("https://") {
        return Err(
            "give host:port; `probe.ca` of the pool says that its replicas have TLS".to_owned(),
        );
    }
    Address::parse(without_scheme(text))
}

fn without_scheme(text: &str) -> &str {
    let text = text.strip_prefix("http://").unwrap_or(text);
    text.strip_suffix('/').unwrap_or(text)
}

/// The address by which this machine reaches a listener: the loopback address where it listens on all of the machine's.
pub(super) fn reachable(mut listen: SocketAddr) -> SocketAddr {
    if listen.ip().is_unspecified() {
        listen.set_ip(match listen {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    listen
}

/// The IP address of a replica. A name must have one: the service knows replicas by their IP addresses.
pub(super) async fn resolve(address: &Address) -> anyhow::Result<SocketAddr> {
    let (name, port) = match address {
        Address::Ip(address) => return Ok(*address),
        Address::Name(name, port) => (name, *port),
    };
    let found = lookup_host((name.as_str(), port)).await;
    let found = found.with_context(|| format!("the name `{name}` cannot be resolved"))?;
    let mut found: Vec<SocketAddr> = found.collect();
    // `localhost` has an address of each family; engines listen on that of IPv4.
    if found.iter().any(SocketAddr::is_ipv4) {
        found.retain(SocketAddr::is_ipv4);
    }
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [address] => Ok(*address),
        [] => bail!("the name `{name}` has no address"),
        _ => {
            let list: Vec<String> = found.iter().map(ToString::to_string).collect();
            bail!(
                "`{name}` has several addresses: give one of {}",
                list.join(", ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_urls_are_addresses() {
        for (text, expected) in [
            ("127.0.0.1:9003", "127.0.0.1:9003"),
            ("http://127.0.0.1:9003", "127.0.0.1:9003"),
            ("http://localhost:9003/", "localhost:9003"),
            ("[::1]:9003", "[::1]:9003"),
            ("engine-0.engines:8000", "engine-0.engines:8000"),
        ] {
            for parse in [parse_admin, parse_replica] {
                assert_eq!(parse(text).unwrap().to_string(), expected);
            }
        }
    }

    #[test]
    fn a_mistake_says_what_to_give() {
        for text in ["localhost", "10.0.0.1", "http://engine:8000/v1", "", "a:0"] {
            let error = parse_replica(text).unwrap_err();
            assert!(
                error.contains("host:port") || error.contains("port 0"),
                "{text}: {error}"
            );
        }
        assert!(parse_admin("https://a:1").unwrap_err().contains("no TLS"));
        assert!(
            parse_replica("https://a:1")
                .unwrap_err()
                .contains("probe.ca")
        );
    }

    #[tokio::test]
    async fn localhost_is_the_loopback_address_of_ipv4() {
        let address = parse_replica("localhost:18003").unwrap();
        let expected: SocketAddr = "127.0.0.1:18003".parse().unwrap();
        assert_eq!(resolve(&address).await.unwrap(), expected);
    }
}
