//! Free loopback ports that are known before the program that listens on them starts.
//!
//! Port 0 is better where a program says which port it got; the harness uses it for the engines and for Envoy. The
//! ports of services and of regions stand in the configurations of others and must survive a restart, so they are
//! chosen here: outside of the range from which the kernel takes ports of its own accord, so that no connection and no
//! other program's port 0 is given one, and under a lock on a file for each port, so that no other harness takes it.
//!
//! Rejected: to bind port 0, close it, and hope; or to leave a socket in `TIME_WAIT` there, which keeps the kernel from
//! handing the port out. A process that is being started by another thread holds copies of our sockets until its program
//! is loaded: the listener then lived on for a moment, and it was the wrong side of the connection that waited. For the
//! same reason a port is tried out here without listening on it: a copy of such a socket stands in nobody's way.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

use anyhow::Context as _;
use tokio::net::TcpSocket;

/// Where the kernel says which ports it gives out itself; two numbers.
const EPHEMERAL_PATH: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// The range of a kernel that does not say.
const EPHEMERAL_DEFAULT: RangeInclusive<u16> = 32768..=60999;
/// Below this are ports with names, and those of the examples.
const LOWEST: u16 = 20000;
/// From one process to the next the search starts so much further on, to meet fewer locks.
const STRIDE: usize = 37;

/// A loopback address that is ours until this is dropped.
#[derive(Debug)]
pub struct ReservedPort {
    address: SocketAddr,
    _lock: File,
}

impl ReservedPort {
    /// The address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Takes a port that nobody listens on.
///
/// # Errors
/// When the machine has none left, or no directory for temporary files.
pub fn reserve() -> anyhow::Result<ReservedPort> {
    let directory = std::env::temp_dir().join("isotherm-ports");
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let ports = candidates(&ephemeral());
    let start = usize::try_from(std::process::id())? * STRIDE % ports.len().max(1);
    let order = ports.iter().cycle().skip(start).take(ports.len());
    for port in order {
        let path = directory.join(port.to_string());
        // Another user's file, or another's lock: the next one.
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

/// Above the kernel's range, then below it.
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
    let said = fs::read_to_string(EPHEMERAL_PATH).ok().and_then(parse);
    said.unwrap_or(EPHEMERAL_DEFAULT)
}

/// Whether a server could listen there, with `SO_REUSEADDR` as all of ours have.
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
    fn a_reserved_port_can_be_bound_and_is_given_once() {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Other threads start processes, which for a moment hold copies of our sockets.
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
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
            over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_port_in_use_is_not_given() {
        let first = reserve().unwrap();
        let listener = TcpListener::bind(first.address()).unwrap();
        let address = first.address();
        drop(first);
        assert!(!is_free(address));
        drop(listener);
    }

    #[test]
    fn the_kernels_own_ports_are_left_alone() {
        assert_eq!(candidates(&(32768..=60999)).first(), Some(&61000));
        assert!(
            !candidates(&(32768..=60999))
                .iter()
                .any(|port| (32768..=60999).contains(port))
        );
        assert_eq!(candidates(&(30000..=65535)).first(), Some(&20000));
    }
}
