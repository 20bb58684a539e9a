//! New connections while Envoy does not run.
//!
//! A listening socket lives as long as a process has it. The supervisor takes copies of Envoy's, one for each worker, by
//! `pidfd_getfd`. When Envoy dies, the copies still listen: the system refuses no connection, and none in its queue is
//! lost. The supervisor accepts from the copies then. The next Envoy opens sockets of its own at the same address
//! (`SO_REUSEPORT`). From then on the system gives new connections to those alone, and the supervisor closes the copies and passes
//! its connections on, byte for byte.
//!
//! Rejected: a listener that the supervisor opens when Envoy has died, which comes too late for the first clients; Envoy's
//! hot restart, whose parent must be an Envoy; a proxy in front of Envoy, which every request would pay for. A connection
//! that was passed on has a loopback address as its client until it closes.

use std::fs;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt::AttachReusePortCbpf};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use crate::accept::accept_next;
use crate::cli::address::reachable;

/// The most connections that the supervisor holds. Further ones wait in the system's queue.
const HELD_MAX: usize = 16_384;
/// Time for which connections whose handshake has begun may still arrive at a copy.
const HANDSHAKE_MAX: Duration = Duration::from_millis(300);

/// Copies of Envoy's listening sockets.
#[derive(Debug)]
pub(super) struct ListenerCopies(Vec<StdListener>);

impl ListenerCopies {
    /// Copies the sockets with which a process listens at an address.
    pub(super) fn of(process: Pid, address: SocketAddr) -> anyhow::Result<Self> {
        let handle = pidfd_open(process, PidfdFlags::empty())?;
        let mut copies = Vec::new();
        for entry in fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero()))? {
            let entry = entry?;
            let target = fs::read_link(entry.path()).unwrap_or_default();
            if !target.to_string_lossy().starts_with("socket:") {
                continue;
            }
            let number = entry.file_name().to_string_lossy().parse()?;
            let copy = match pidfd_getfd(&handle, number, PidfdGetfdFlags::empty()) {
                Ok(copy) => copy,
                // Closed meanwhile.
                Err(Errno::BADF) => continue,
                Err(error) => return Err(error).context("the system allows no copy of a socket"),
            };
            copies.extend(listener_at(copy, address));
        }
        ensure!(
            !copies.is_empty(),
            "the process does not listen at {address}"
        );
        Ok(Self(copies))
    }

    /// Accepts connections from the copies, and holds them. Must be called inside a tokio runtime.
    pub(super) fn hold(self) -> anyhow::Result<HeldConnections> {
        let places = Arc::new(Semaphore::new(HELD_MAX));
        let (sender, accepted) = mpsc::unbounded_channel();
        let (mut listeners, mut accepting) = (Vec::new(), JoinSet::new());
        for copy in self.0 {
            let listener = Arc::new(TcpListener::from_std(copy)?);
            listeners.push(Arc::clone(&listener));
            let (places, sender) = (Arc::clone(&places), sender.clone());
            accepting.spawn(async move {
                loop {
                    let ((stream, _), place) = accept_next(&places, || listener.accept()).await;
                    if sender.send((stream, place)).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(HeldConnections {
            listeners,
            accepting,
            accepted,
        })
    }
}

/// The socket, if it listens at this address. A connection has a peer.
fn listener_at(socket: OwnedFd, address: SocketAddr) -> Option<StdListener> {
    let socket = StdStream::from(socket);
    let is_at = socket.local_addr().is_ok_and(|own| own == address);
    (is_at && socket.peer_addr().is_err()).then(|| OwnedFd::from(socket).into())
}

/// Connections that wait for the next Envoy.
#[derive(Debug)]
pub(super) struct HeldConnections {
    listeners: Vec<Arc<TcpListener>>,
    accepting: JoinSet<()>,
    /// Bounded by the places.
    accepted: mpsc::UnboundedReceiver<(TcpStream, OwnedSemaphorePermit)>,
}

impl HeldConnections {
    /// Leaves the address to the Envoy that listens there now, and passes the connections on to it.
    pub(super) async fn release(mut self, envoy: SocketAddr, relays: &TaskTracker) {
        if let Some(listener) = self.listeners.first()
            && let Err(error) = give_new_connections_to_others(listener, self.listeners.len())
        {
            tracing::warn!(%error, "a connection that opens now may be reset");
        }
        sleep(HANDSHAKE_MAX).await;
        self.accepting.shutdown().await;
        drop(self.listeners);
        let mut count = 0_usize;
        while let Some((stream, place)) = self.accepted.recv().await {
            count += 1;
            relays.spawn(async move {
                if let Err(error) = relay(stream, reachable(envoy)).await {
                    tracing::debug!(%error, "a connection that waited for Envoy has ended");
                }
                drop(place);
            });
        }
        tracing::info!(count, "connections have waited for Envoy");
    }
}

/// Makes the system give new connections to the sockets that began to listen after the first `copies` of their address.
fn give_new_connections_to_others(listener: &TcpListener, copies: usize) -> anyhow::Result<()> {
    let copies = u32::try_from(copies)?;
    let random = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM).cast_unsigned();
    let instruction = |code: u32, k| {
        anyhow::Ok(libc::sock_filter {
            code: code.try_into()?,
            jt: 0,
            jf: 0,
            k,
        })
    };
    // A random number below the count of copies, plus that count: the system numbers sockets in the order in which they began to
    // listen. A number that no socket has makes the system choose as without a program.
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, random)?,
        instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, copies)?,
        instruction(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, copies)?,
        instruction(libc::BPF_RET | libc::BPF_A, 0)?,
    ];
    let program = libc::sock_fprog {
        len: u16::try_from(program.len())?,
        filter: program.as_mut_ptr(),
    };
    Ok(setsockopt(listener, AttachReusePortCbpf, &program)?)
}

async fn relay(mut client: TcpStream, envoy: SocketAddr) -> std::io::Result<()> {
    let mut envoy = TcpStream::connect(envoy).await?;
    client.set_nodelay(true)?;
    envoy.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut envoy).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpSocket;
    use tokio::task::JoinHandle;

    use super::*;

    const NO_ADDRESS: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
    const CLIENTS: usize = 100;

    fn listen(address: SocketAddr) -> TcpListener {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseport(true).unwrap();
        socket.bind(address).unwrap();
        socket.listen(128).unwrap()
    }

    /// Answers each connection with its first byte.
    async fn echo(listener: TcpListener) {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let byte = stream.read_u8().await.unwrap();
                stream.write_u8(byte).await.unwrap();
            });
        }
    }

    async fn ask(address: SocketAddr) -> std::io::Result<u8> {
        ask_on(TcpStream::connect(address).await?).await
    }

    async fn ask_on(mut stream: TcpStream) -> std::io::Result<u8> {
        stream.write_u8(7).await?;
        stream.read_u8().await
    }

    fn copies_in_this_process(address: SocketAddr) -> ListenerCopies {
        ListenerCopies::of(rustix::process::getpid(), address).unwrap()
    }

    #[tokio::test]
    async fn connections_without_an_envoy_wait_for_the_next_one() {
        let first = listen(NO_ADDRESS);
        let address = first.local_addr().unwrap();
        let copies = copies_in_this_process(address);
        // In the queue of the listener that goes.
        let early = TcpStream::connect(address).await.unwrap();
        drop(first);
        let mut clients: Vec<JoinHandle<_>> = vec![tokio::spawn(ask_on(early))];
        clients.extend((1..CLIENTS).map(|_| tokio::spawn(ask(address))));
        let held = copies.hold().unwrap();

        let next = tokio::spawn(echo(listen(address)));
        let relays = TaskTracker::new();
        held.release(address, &relays).await;

        for client in clients {
            assert_eq!(client.await.unwrap().unwrap(), 7);
        }
        next.abort();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_connection_is_lost_while_the_address_changes_hands() {
        let first = listen(NO_ADDRESS);
        let address = first.local_addr().unwrap();
        let held = copies_in_this_process(address).hold().unwrap();
        drop(first);
        let next = tokio::spawn(echo(listen(address)));
        let relays = TaskTracker::new();
        let release = tokio::spawn({
            let relays = relays.clone();
            async move { held.release(address, &relays).await }
        });
        let mut count = 0;
        while !release.is_finished() || count < CLIENTS {
            assert_eq!(ask(address).await.unwrap(), 7);
            count += 1;
        }
        release.await.unwrap();
        next.abort();
    }

    #[test]
    fn a_process_that_does_not_listen_there_is_an_error() {
        let error = ListenerCopies::of(rustix::process::getpid(), NO_ADDRESS).unwrap_err();
        assert!(error.to_string().contains("does not listen"), "{error}");
    }
}
