//! Free loopback ports that are known before the program that listens on them starts.
//!
//! Port 0 is better where a program says which port it got; the harness uses it for the engines and for Envoy. The
//! service's ports stand in Envoy's configuration and must survive a restart, so they are chosen here. Binding port
//! 0 and closing it again would let the kernel hand out the same port to the next program that asks. So a connection
//! is made to it and closed from the listening side: what remains is a socket in `TIME_WAIT`, which keeps the kernel
//! from handing the port out for a minute, while a server with `SO_REUSEADDR` (all of ours) can bind it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use anyhow::Context as _;

/// A loopback address that nobody else will be given for the next minute.
///
/// # Errors
/// When the machine has no port left.
pub fn reserve() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free loopback port")?;
    let address = listener.local_addr()?;
    let client = TcpStream::connect(address)?;
    let (server, _) = listener.accept()?;
    drop(server); // closes first, so `TIME_WAIT` is on the side of the reserved port
    drop(client);
    Ok(address)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Other programs of the machine may hold a port for a moment.
    fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
        let mut bound = TcpListener::bind(address);
        for _ in 0..200 {
            if bound.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
            bound = TcpListener::bind(address);
        }
        bound
    }

    #[test]
    fn a_reserved_port_can_be_bound_and_is_given_once() {
        let mut addresses: Vec<SocketAddr> = (0..20).map(|_| reserve().unwrap()).collect();
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), 20);
        let free = addresses.iter().filter(|address| bind(**address).is_ok());
        assert!(free.count() >= 18, "reserved ports are not to be had");
    }
}
