//! A TCP proxy that behaves like a network between two regions: slow, silent or broken.
//!
//! A delay holds each byte back and lets the next follow at once, so throughput does not suffer. A black hole is a
//! network that loses every packet: connections are accepted (the peer's kernel would accept them), no byte passes and no
//! error appears; when it ends, the bytes arrive late. A cut resets every connection and each new one.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::tcp_server::TcpServer;

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
    server: TcpServer,
    default_targets: Vec<SocketAddr>,
    targets: watch::Sender<Vec<SocketAddr>>,
}

impl FaultyLink {
    /// Starts a proxy on a free port. New connections go to the targets in turn; a target that does not listen is skipped.
    pub async fn start(
        conditions: &NetworkConditions,
        default_targets: Vec<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let (targets, current_targets) = watch::channel(default_targets.clone());
        let (conditions, mut number) = (conditions.clone(), 0_usize);
        let server = TcpServer::start(move |stream| {
            let mut order = current_targets.borrow().clone();
            let first = number % order.len().max(1);
            order.rotate_left(first);
            number = number.wrapping_add(1);
            proxy(stream, order, conditions.clone())
        });
        Ok(Self {
            server: server.await?,
            default_targets,
            targets,
        })
    }

    /// The address to connect to.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
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

/// Proxies one connection until either side closes it or the network resets it.
async fn proxy(mut near: TcpStream, targets: Vec<SocketAddr>, conditions: NetworkConditions) {
    let (start, mut far) = (conditions.now(), None);
    let is_closed = tokio::select! {
        closed = forward_both(&mut near, &mut far, &targets, &conditions) => closed.is_some(),
        () = conditions.wait_until_reset(start) => false,
    };
    if !is_closed {
        // A stream without linger closes with a TCP reset instead of a FIN.
        for stream in far.into_iter().chain([near]) {
            let _ = stream.set_zero_linger();
        }
    }
}

/// Connects to a target and forwards both directions until both are closed; `None` when a connection breaks.
async fn forward_both(
    near: &mut TcpStream,
    far: &mut Option<TcpStream>,
    targets: &[SocketAddr],
    conditions: &NetworkConditions,
) -> Option<()> {
    conditions.wait_until_passing().await;
    let far = far.insert(connect(targets).await?);
    near.set_nodelay(true).ok()?;
    far.set_nodelay(true).ok()?;
    let ((near_in, near_out), (far_in, far_out)) = (near.split(), far.split());
    let near_to_far = forward(near_in, far_out, conditions);
    let far_to_near = forward(far_in, near_out, conditions);
    tokio::try_join!(near_to_far, far_to_near).ok().map(|_| ())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Generous, for a machine whose cores are busy.
    const ECHO_MAX: Duration = Duration::from_secs(60);

    async fn echo_server() -> TcpServer {
        let echo = |mut stream: TcpStream| async move {
            let (mut read, mut write) = stream.split();
            let _ = tokio::io::copy(&mut read, &mut write).await;
        };
        TcpServer::start(echo).await.unwrap()
    }

    async fn link_to(server: &TcpServer, conditions: &NetworkConditions) -> FaultyLink {
        let targets = vec![server.address()];
        FaultyLink::start(conditions, targets).await.unwrap()
    }

    async fn exchange(stream: &mut TcpStream, text: &str) -> std::io::Result<String> {
        stream.write_all(text.as_bytes()).await?;
        let mut answer = vec![0; text.len()];
        tokio::time::timeout(ECHO_MAX, stream.read_exact(&mut answer)).await??;
        Ok(String::from_utf8(answer).unwrap())
    }

    #[tokio::test]
    async fn an_exchange_takes_at_least_the_round_trip_time() {
        let server = echo_server().await;
        let conditions = NetworkConditions::with_round_trip(Duration::from_millis(100));
        let link = link_to(&server, &conditions).await;
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
        let server = echo_server().await;
        let conditions = NetworkConditions::with_round_trip(Duration::ZERO);
        let link = link_to(&server, &conditions).await;
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
        let server = echo_server().await;
        let conditions = NetworkConditions::with_round_trip(Duration::ZERO);
        let link = link_to(&server, &conditions).await;
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
        let server = echo_server().await;
        let gone = crate::port::reserve().unwrap();
        let conditions = NetworkConditions::with_round_trip(Duration::ZERO);
        let targets = vec![gone.address(), server.address()];
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
