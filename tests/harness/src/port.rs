//! Free loopback ports that are known before the program that listens on them starts.
//!
//! The ports of services and gateways appear in other programs' configurations and survive a restart. This module chooses
//! ports outside the kernel's ephemeral range, so no `bind` to port 0 gets one. It locks a file for each port against other
//! processes of the harness. A port that was bound, closed and used again is not safe: a process that another thread starts holds copies of
//! all sockets until its program is loaded.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

use anyhow::Context as _;
use tokio::net::TcpSocket;

/// The kernel's ephemeral range: two numbers.
const EPHEMERAL_PATH: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Linux's default range.
const EPHEMERAL_DEFAULT: RangeInclusive<u16> = 32768..=60999;
/// Lower ports belong to well-known programs and to the examples.
const LOWEST: u16 = 20000;
/// Distance between the first candidates of two consecutive process ids, to meet fewer locks.
const STRIDE: usize = 37;

/// A loopback address that is reserved until this is dropped.
#[derive(Debug)]
pub struct ReservedPort {
    address: SocketAddr,
    _lock: File,
}

impl ReservedPort {
    /// The address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Reserves a port on which no program listens.
pub fn reserve() -> anyhow::Result<ReservedPort> {
    let directory = std::env::temp_dir().join("isotherm-ports");
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let ports = candidates(&ephemeral());
    let start = usize::try_from(std::process::id())? * STRIDE % ports.len().max(1);
    let order = ports.iter().cycle().skip(start).take(ports.len());
    for port in order {
        let path = directory.join(port.to_string());
        // Another user's file.
        let Ok(lock) = File::options().create(true).append(true).open(path) else {
            continue;
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
        if lock.try_lock().is_ok() && is_free(address) {
            return Ok(ReservedPort {
                address,
                _lock: lock,
            });
        }
    }
    anyhow::bail!("no free loopback port outside of {EPHEMERAL_PATH}")
}

/// The ports above the ephemeral range, then those below it.
fn candidates(ephemeral: &RangeInclusive<u16>) -> Vec<u16> {
    let above = ephemeral.end().saturating_add(1)..u16::MAX;
    let below = LOWEST..*ephemeral.start();
    above.chain(below).collect()
}

fn ephemeral() -> RangeInclusive<u16> {
    let parse = |text: String| {
        let mut numbers = text.split_whitespace().map(str::parse);
        Some(numbers.next()?.ok()?..=numbers.next()?.ok()?)
    };
    let range = fs::read_to_string(EPHEMERAL_PATH).ok().and_then(parse);
    range.unwrap_or(EPHEMERAL_DEFAULT)
}

/// Whether a server with `SO_REUSEADDR` could listen there.
fn is_free(address: SocketAddr) -> bool {
    let bound = TcpSocket::new_v4().and_then(|socket| {
        socket.set_reuseaddr(true)?;
        socket.bind(address)
    });
    bound.is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::TcpListener;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_reserved_port_can_be_bound_and_is_reserved_once() {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Processes that start hold copies of all sockets for a moment.
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    Command::new("true").status().unwrap();
                }
            });
            for _ in 0..20 {
                let reserved: Vec<ReservedPort> = (0..20).map(|_| reserve().unwrap()).collect();
                let addresses: BTreeSet<SocketAddr> =
                    reserved.iter().map(ReservedPort::address).collect();
                assert_eq!(addresses.len(), 20);
                for address in addresses {
                    TcpListener::bind(address).unwrap();
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_port_in_use_is_not_free() {
        let first = reserve().unwrap();
        let listener = TcpListener::bind(first.address()).unwrap();
        let address = first.address();
        drop(first);
        assert!(!is_free(address));
        drop(listener);
    }

    #[test]
    fn ephemeral_ports_are_no_candidates() {
        assert_eq!(candidates(&(32768..=60999)).first(), Some(&61000));
        assert!(
            !candidates(&(32768..=60999))
                .iter()
                .any(|port| (32768..=60999).contains(port))
        );
        assert_eq!(candidates(&(30000..=65535)).first(), Some(&20000));
    }
}
