//! A TCP proxy that behaves like a network between two regions: slow, silent or broken.
//!
//! A delay holds each byte back and lets the next follow at once, so throughput does not suffer. A black hole is a
//! network that loses every packet: connections are accepted (the peer's kernel would accept them), no byte passes and no
//! error appears; when it ends, the bytes arrive late. A cut resets every connection and each new one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

/// Bytes of one read.
const CHUNK_BYTES: usize = 16 * 1024;
/// Capacity of the link in chunks, for each direction of a connection.
const CHUNKS_IN_FLIGHT_MAX: usize = 1024;
/// Time for which a connection stays open when no target listens, so that a client does not retry in a tight loop.
const CONNECT_RETRY_DELAY: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Up,
    Blackhole,
    Cut,
}

#[derive(Clone, Copy, Debug)]
struct State {
    mode: Mode,
    one_way: Duration,
    /// Number of resets.
    resets: u64,
}

/// The conditions of a network, shared by all links that were started with them.
#[derive(Clone, Debug)]
pub struct NetworkConditions(watch::Sender<State>);

impl NetworkConditions {
    /// A network that loses nothing and adds `round_trip` to each exchange.
    #[must_use]
    pub fn with_round_trip(round_trip: Duration) -> Self {
        let state = State {
            mode: Mode::Up,
            one_way: round_trip / 2,
            resets: 0,
        };
        Self(watch::Sender::new(state))
    }

    /// Changes the added round-trip time.
    pub fn set_round_trip(&self, round_trip: Duration) {
        self.0.send_modify(|state| state.one_way = round_trip / 2);
    }

    /// Resets every connection, and each new one.
    pub fn cut(&self) {
        self.0.send_modify(|state| {
            state.mode = Mode::Cut;
            state.resets += 1;
        });
    }

    /// Resets every connection; new ones pass.
    pub fn reset_connections(&self) {
        self.0.send_modify(|state| state.resets += 1);
    }

    /// Holds all bytes back without an error on either side.
    pub fn blackhole(&self) {
        self.0.send_modify(|state| state.mode = Mode::Blackhole);
    }

    /// Ends a cut or a black hole.
    pub fn restore(&self) {
        self.0.send_modify(|state| state.mode = Mode::Up);
    }

    async fn wait_until_passing(&self) {
        let mut state = self.0.subscribe();
        // This struct holds the sender, so the channel never closes.
        let _ = state.wait_for(|state| state.mode != Mode::Blackhole).await;
    }

    /// Waits until connections that exist since `then` are reset.
    async fn wait_until_reset(&self, then: State) {
        let mut state = self.0.subscribe();
        let is_reset = |now: &State| now.mode == Mode::Cut || now.resets != then.resets;
        let _ = state.wait_for(is_reset).await;
    }

    fn now(&self) -> State {
        *self.0.borrow()
    }
}

/// A TCP proxy between two regions. It closes, with all its connections, when it is dropped.
#[derive(Debug)]
pub struct FaultyLink {
    address: SocketAddr,
    default_targets: Vec<SocketAddr>,
    targets: Arc<watch::Sender<Vec<SocketAddr>>>,
    _server: JoinSet<()>,
}

impl FaultyLink {
    /// Starts a proxy on a free port. New connections go to the targets in turn; a target that does not listen is skipped.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start(
        conditions: &NetworkConditions,
        targets: Vec<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("no free loopback port")?;
        let address = listener.local_addr()?;
        let default_targets = targets.clone();
        let targets = Arc::new(watch::Sender::new(targets));
        let mut server = JoinSet::new();
        server.spawn(accept(listener, conditions.clone(), Arc::clone(&targets)));
        Ok(Self {
            address,
            default_targets,
            targets,
            _server: server,
        })
    }

    /// The address to connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends new connections to other targets; existing connections stay.
    pub fn connect_to(&self, targets: Vec<SocketAddr>) {
        self.targets.send_replace(targets);
    }

    /// Sends new connections to the targets of the start again.
    pub fn connect_to_default(&self) {
        self.connect_to(self.default_targets.clone());
    }
}

async fn accept(
    listener: TcpListener,
    conditions: NetworkConditions,
    targets: Arc<watch::Sender<Vec<SocketAddr>>>,
) {
    let mut connections = JoinSet::new();
    for number in 0_usize.. {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    let mut order = targets.borrow().clone();
                    let first = number % order.len().max(1);
                    order.rotate_left(first);
                    connections.spawn(proxy(stream, order, conditions.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Proxies one connection until either side closes it or the network resets it.
async fn proxy(mut near: TcpStream, targets: Vec<SocketAddr>, conditions: NetworkConditions) {
    let _ = near.set_nodelay(true);
    let start = conditions.now();
    let passed = async {
        conditions.wait_until_passing().await;
        let mut far = connect(&targets).await?;
        let _ = far.set_nodelay(true);
        let is_broken = {
            let ((near_in, near_out), (far_in, far_out)) = (near.split(), far.split());
            tokio::select! {
                ended = async {
                    tokio::try_join!(
                        forward(near_in, far_out, &conditions),
                        forward(far_in, near_out, &conditions),
                    )
                } => ended.is_err(),
                () = conditions.wait_until_reset(start) => true,
            }
        };
        if is_broken {
            reset(far);
        }
        (!is_broken).then_some(())
    };
    let is_whole = tokio::select! {
        passed = passed => passed.is_some(),
        () = conditions.wait_until_reset(start) => false,
    };
    if !is_whole {
        reset(near);
    }
}

async fn connect(targets: &[SocketAddr]) -> Option<TcpStream> {
    for target in targets {
        if let Ok(stream) = TcpStream::connect(target).await {
            return Some(stream);
        }
    }
    sleep(CONNECT_RETRY_DELAY).await;
    None
}

/// Forwards one direction: each chunk is written one delay after it was read.
async fn forward(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    conditions: &NetworkConditions,
) -> std::io::Result<()> {
    let (sender, mut chunks) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_IN_FLIGHT_MAX);
    let read = async move {
        loop {
            let mut chunk = vec![0; CHUNK_BYTES];
            let length = from.read(&mut chunk).await?;
            if length == 0 {
                return Ok::<(), std::io::Error>(());
            }
            chunk.truncate(length);
            let due = Instant::now() + conditions.now().one_way;
            if sender.send((due, chunk)).await.is_err() {
                return Ok(());
            }
        }
    };
    let write = async move {
        while let Some((due, chunk)) = chunks.recv().await {
            sleep_until(due).await;
            conditions.wait_until_passing().await;
            to.write_all(&chunk).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(read, write).map(|_| ())
}

/// Closes a stream with a TCP reset instead of a FIN.
fn reset(stream: TcpStream) {
    let _ = stream.set_zero_linger();
    drop(stream);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generous, for a machine whose cores are busy.
    const ECHO_MAX: Duration = Duration::from_secs(60);

    /// An echo server.
    async fn echo() -> (SocketAddr, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                connections.spawn(async move {
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        (address, server)
    }

    async fn exchange(stream: &mut TcpStream, text: &str) -> std::io::Result<String> {
        stream.write_all(text.as_bytes()).await?;
        let mut answer = vec![0; text.len()];
        tokio::time::timeout(ECHO_MAX, stream.read_exact(&mut answer)).await??;
        Ok(String::from_utf8(answer).unwrap())
    }

    #[tokio::test]
    async fn an_exchange_takes_at_least_the_round_trip_time() {
        let (address, _server) = echo().await;
        let conditions = NetworkConditions::with_round_trip(Duration::from_millis(100));
        let link = FaultyLink::start(&conditions, vec![address]).await.unwrap();
        let mut stream = TcpStream::connect(link.address()).await.unwrap();
        let start = Instant::now();
        assert_eq!(exchange(&mut stream, "hello").await.unwrap(), "hello");
        assert!(start.elapsed() >= Duration::from_millis(100));
        // Chunks that follow each other share one delay: two hundred delays in a row would exceed the bound.
        conditions.set_round_trip(Duration::from_secs(1));
        let long = "x".repeat(200 * CHUNK_BYTES);
        assert_eq!(exchange(&mut stream, &long).await.unwrap(), long);
    }

    #[tokio::test]
    async fn a_black_hole_delays_all_bytes_until_it_ends() {
        let (address, _server) = echo().await;
        let conditions = NetworkConditions::with_round_trip(Duration::ZERO);
        let link = FaultyLink::start(&conditions, vec![address]).await.unwrap();
        let mut old = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(exchange(&mut old, "before").await.unwrap(), "before");
        conditions.blackhole();
        let mut new = TcpStream::connect(link.address()).await.unwrap();
        for stream in [&mut old, &mut new] {
            stream.write_all(b"late").await.unwrap();
            let mut byte = [0];
            let read = tokio::time::timeout(Duration::from_millis(100), stream.read(&mut byte));
            assert!(read.await.is_err(), "bytes pass a black hole");
        }
        conditions.restore();
        for stream in [&mut old, &mut new] {
            let mut answer = [0; 4];
            let read = tokio::time::timeout(ECHO_MAX, stream.read_exact(&mut answer)).await;
            read.unwrap().unwrap();
            assert_eq!(&answer, b"late");
        }
    }

    #[tokio::test]
    async fn a_cut_resets_connections_and_new_ones_pass_after_it() {
        let (address, _server) = echo().await;
        let conditions = NetworkConditions::with_round_trip(Duration::ZERO);
        let link = FaultyLink::start(&conditions, vec![address]).await.unwrap();
        let mut old = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(exchange(&mut old, "before").await.unwrap(), "before");
        conditions.cut();
        let error = exchange(&mut old, "during").await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        let mut new = TcpStream::connect(link.address()).await.unwrap();
        exchange(&mut new, "during").await.unwrap_err();
        conditions.restore();
        let mut new = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(exchange(&mut new, "after").await.unwrap(), "after");
        conditions.reset_connections();
        exchange(&mut new, "after").await.unwrap_err();
        let mut new = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(exchange(&mut new, "after").await.unwrap(), "after");
    }

    #[tokio::test]
    async fn a_link_skips_a_target_that_does_not_listen_and_can_change_targets() {
        let (address, _server) = echo().await;
        let gone = crate::port::reserve().unwrap();
        let conditions = NetworkConditions::with_round_trip(Duration::ZERO);
        let targets = vec![gone.address(), address];
        let link = FaultyLink::start(&conditions, targets).await.unwrap();
        for _ in 0..4 {
            let mut stream = TcpStream::connect(link.address()).await.unwrap();
            assert_eq!(exchange(&mut stream, "hello").await.unwrap(), "hello");
        }
        link.connect_to(vec![gone.address()]);
        let mut stream = TcpStream::connect(link.address()).await.unwrap();
        exchange(&mut stream, "hello").await.unwrap_err();
    }
}
