//! A TCP connection's way between two regions: a proxy that takes as long as a long wire, and breaks when told to.
//!
//! What it does to bytes is what a network does. A delay holds every byte back and lets the next follow at once (so
//! throughput does not suffer). Silence is a network that loses everything: connections are accepted (the other side's
//! kernel would have), nothing passes, nothing fails, and when it ends, what was sent arrives late. A cut resets every
//! connection and each new one.

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

/// How much is read at once.
const PIECE_BYTES: usize = 16 * 1024;
/// How many pieces of one direction are on their way at most: what the wire holds.
const PIECES_MAX: usize = 1024;
/// How long a connection that finds no target waits for one, as a client of a program that starts would.
const TARGET_PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passage {
    Open,
    Silent,
    Cut,
}

#[derive(Clone, Copy, Debug)]
struct State {
    passage: Passage,
    one_way: Duration,
    /// How often connections were reset.
    resets: u64,
}

/// What the network between two places is like, for all the wires that were given it.
#[derive(Clone, Debug)]
pub struct Weather(watch::Sender<State>);

impl Weather {
    /// Everything passes; a question and its answer take so much longer than they would.
    #[must_use]
    pub fn clear(round_trip: Duration) -> Self {
        let state = State {
            passage: Passage::Open,
            one_way: round_trip / 2,
            resets: 0,
        };
        Self(watch::Sender::new(state))
    }

    /// From now on a question and its answer take so much longer.
    pub fn set_round_trip(&self, round_trip: Duration) {
        self.0.send_modify(|state| state.one_way = round_trip / 2);
    }

    /// Resets every connection, and each new one.
    pub fn cut(&self) {
        self.0.send_modify(|state| {
            state.passage = Passage::Cut;
            state.resets += 1;
        });
    }

    /// Resets every connection; new ones pass.
    pub fn reset(&self) {
        self.0.send_modify(|state| state.resets += 1);
    }

    /// Holds everything back, and says so to nobody.
    pub fn silence(&self) {
        self.0.send_modify(|state| state.passage = Passage::Silent);
    }

    /// Ends a cut or a silence.
    pub fn heal(&self) {
        self.0.send_modify(|state| state.passage = Passage::Open);
    }

    async fn until(&self, wanted: impl Fn(Passage) -> bool) {
        let mut state = self.0.subscribe();
        // We hold the sender, so it never closes.
        let _ = state.wait_for(|state| wanted(state.passage)).await;
    }

    /// Until what exists since `then` is reset.
    async fn broken(&self, then: State) {
        let mut state = self.0.subscribe();
        let broken = |now: &State| now.passage == Passage::Cut || now.resets != then.resets;
        let _ = state.wait_for(broken).await;
    }

    fn now(&self) -> State {
        *self.0.borrow()
    }
}

/// A port that leads somewhere else. It closes, with all its connections, when this is dropped.
#[derive(Debug)]
pub struct Wire {
    address: SocketAddr,
    first: Vec<SocketAddr>,
    targets: Arc<watch::Sender<Vec<SocketAddr>>>,
    _server: JoinSet<()>,
}

impl Wire {
    /// Starts one on a free port. A new connection goes to the targets in turn, past those that do not listen.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start(weather: &Weather, targets: Vec<SocketAddr>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("no free loopback port")?;
        let address = listener.local_addr()?;
        let first = targets.clone();
        let targets = Arc::new(watch::Sender::new(targets));
        let mut server = JoinSet::new();
        server.spawn(serve(listener, weather.clone(), Arc::clone(&targets)));
        Ok(Self {
            address,
            first,
            targets,
            _server: server,
        })
    }

    /// Where it begins.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where new connections lead from now on; those that exist stay.
    pub fn lead_to(&self, targets: Vec<SocketAddr>) {
        self.targets.send_replace(targets);
    }

    /// New connections lead again where they did at first.
    pub fn lead_back(&self) {
        self.lead_to(self.first.clone());
    }
}

async fn serve(
    listener: TcpListener,
    weather: Weather,
    targets: Arc<watch::Sender<Vec<SocketAddr>>>,
) {
    let mut connections = JoinSet::new();
    for turn in 0_usize.. {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    let mut order = targets.borrow().clone();
                    let first = turn % order.len().max(1);
                    order.rotate_left(first);
                    connections.spawn(carry(stream, order, weather.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection, until either side ends it or the weather does.
async fn carry(mut near: TcpStream, targets: Vec<SocketAddr>, weather: Weather) {
    let _ = near.set_nodelay(true);
    let begun = weather.now();
    let passed = async {
        weather.until(|passage| passage != Passage::Silent).await;
        let mut far = connect(&targets).await?;
        let _ = far.set_nodelay(true);
        let broken = {
            let ((near_in, near_out), (far_in, far_out)) = (near.split(), far.split());
            tokio::select! {
                ended = async {
                    tokio::try_join!(
                        pass(near_in, far_out, &weather),
                        pass(far_in, near_out, &weather),
                    )
                } => ended.is_err(),
                () = weather.broken(begun) => true,
            }
        };
        if broken {
            reset(far);
        }
        (!broken).then_some(())
    };
    let whole = tokio::select! {
        passed = passed => passed.is_some(),
        () = weather.broken(begun) => false,
    };
    if !whole {
        reset(near);
    }
}

async fn connect(targets: &[SocketAddr]) -> Option<TcpStream> {
    for target in targets {
        if let Ok(stream) = TcpStream::connect(target).await {
            return Some(stream);
        }
    }
    sleep(TARGET_PAUSE).await;
    None
}

/// One direction: what is read is written one delay later.
async fn pass(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    weather: &Weather,
) -> std::io::Result<()> {
    let (sender, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES_MAX);
    let read = async move {
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let length = from.read(&mut piece).await?;
            if length == 0 {
                return Ok::<(), std::io::Error>(());
            }
            piece.truncate(length);
            let due = Instant::now() + weather.now().one_way;
            if sender.send((due, piece)).await.is_err() {
                return Ok(());
            }
        }
    };
    let write = async move {
        while let Some((due, piece)) = pieces.recv().await {
            sleep_until(due).await;
            weather.until(|passage| passage != Passage::Silent).await;
            to.write_all(&piece).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(read, write).map(|_| ())
}

/// Closes so that the other side sees a reset, and not an end.
fn reset(stream: TcpStream) {
    let _ = stream.set_zero_linger();
    drop(stream);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    /// A server that sends back what it gets.
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

    async fn say(stream: &mut TcpStream, text: &str) -> std::io::Result<String> {
        stream.write_all(text.as_bytes()).await?;
        let mut answer = vec![0; text.len()];
        tokio::time::timeout(SOON, stream.read_exact(&mut answer)).await??;
        Ok(String::from_utf8(answer).unwrap())
    }

    #[tokio::test]
    async fn a_question_and_its_answer_take_the_round_trip() {
        let (address, _server) = echo().await;
        let weather = Weather::clear(Duration::from_millis(100));
        let wire = Wire::start(&weather, vec![address]).await.unwrap();
        let mut stream = TcpStream::connect(wire.address()).await.unwrap();
        let start = Instant::now();
        assert_eq!(say(&mut stream, "hello").await.unwrap(), "hello");
        assert!(start.elapsed() >= Duration::from_millis(100));
        // Many pieces at once do not take many round trips.
        let start = Instant::now();
        let long = "x".repeat(40 * PIECE_BYTES);
        assert_eq!(say(&mut stream, &long).await.unwrap(), long);
        assert!(
            start.elapsed() < Duration::from_secs(2),
            "{:?}",
            start.elapsed()
        );
    }

    #[tokio::test]
    async fn after_a_silence_everything_arrives_late() {
        let (address, _server) = echo().await;
        let weather = Weather::clear(Duration::ZERO);
        let wire = Wire::start(&weather, vec![address]).await.unwrap();
        let mut old = TcpStream::connect(wire.address()).await.unwrap();
        assert_eq!(say(&mut old, "before").await.unwrap(), "before");
        weather.silence();
        let mut new = TcpStream::connect(wire.address()).await.unwrap();
        for stream in [&mut old, &mut new] {
            stream.write_all(b"late").await.unwrap();
            let mut byte = [0];
            let read = tokio::time::timeout(Duration::from_millis(100), stream.read(&mut byte));
            assert!(read.await.is_err(), "silence lets something through");
        }
        weather.heal();
        for stream in [&mut old, &mut new] {
            let mut answer = [0; 4];
            let read = tokio::time::timeout(SOON, stream.read_exact(&mut answer)).await;
            read.unwrap().unwrap();
            assert_eq!(&answer, b"late");
        }
    }

    #[tokio::test]
    async fn a_cut_resets_and_a_heal_lets_new_connections_pass() {
        let (address, _server) = echo().await;
        let weather = Weather::clear(Duration::ZERO);
        let wire = Wire::start(&weather, vec![address]).await.unwrap();
        let mut old = TcpStream::connect(wire.address()).await.unwrap();
        assert_eq!(say(&mut old, "before").await.unwrap(), "before");
        weather.cut();
        let error = say(&mut old, "during").await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        let mut new = TcpStream::connect(wire.address()).await.unwrap();
        say(&mut new, "during").await.unwrap_err();
        weather.heal();
        let mut new = TcpStream::connect(wire.address()).await.unwrap();
        assert_eq!(say(&mut new, "after").await.unwrap(), "after");
        weather.reset();
        say(&mut new, "after").await.unwrap_err();
        let mut new = TcpStream::connect(wire.address()).await.unwrap();
        assert_eq!(say(&mut new, "after").await.unwrap(), "after");
    }

    #[tokio::test]
    async fn a_wire_passes_by_a_target_that_is_gone_and_can_lead_elsewhere() {
        let (address, _server) = echo().await;
        let gone = crate::port::reserve().unwrap();
        let weather = Weather::clear(Duration::ZERO);
        let targets = vec![gone.address(), address];
        let wire = Wire::start(&weather, targets).await.unwrap();
        for _ in 0..4 {
            let mut stream = TcpStream::connect(wire.address()).await.unwrap();
            assert_eq!(say(&mut stream, "hello").await.unwrap(), "hello");
        }
        wire.lead_to(vec![gone.address()]);
        let mut stream = TcpStream::connect(wire.address()).await.unwrap();
        say(&mut stream, "hello").await.unwrap_err();
    }
}
