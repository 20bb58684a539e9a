//! Restricts links without TLS to loopback addresses.

use std::net::SocketAddr;

/// An address that other machines reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a loopback address: a link without TLS would trust every caller")]
pub struct NotLoopback(pub SocketAddr);

pub(super) fn check_loopback(address: SocketAddr) -> Result<(), NotLoopback> {
    // `to_canonical`: ::ffff:127.0.0.1 is a loopback address, and ::ffff:10.0.0.1 is none.
    if address.ip().to_canonical().is_loopback() {
        Ok(())
    } else {
        Err(NotLoopback(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_pass() {
        for (address, passes) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("10.0.0.1:1", false),
            ("[::ffff:10.0.0.1]:1", false),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(check_loopback(address).is_ok(), passes, "{address}");
        }
    }
}
