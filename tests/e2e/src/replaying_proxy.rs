//! A proxy of plain HTTP/2 that repeats old responses, as an attacker in the network could.
//!
//! A response message is a `DATA` frame, which names its stream and carries no age, so the receiver cannot tell a copy
//! from a new message.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Length of an HTTP/2 frame header: length, type, flags, stream.
const HEADER_BYTES: usize = 9;
/// Frame type of data.
const DATA: u8 = 0;
/// Frames kept from the start of a connection.
const KEPT_FRAMES_MAX: usize = 16;
/// Pause between two repeated frames.
const INTERVAL: Duration = Duration::from_millis(50);
/// Frames that may wait to be written.
const FRAMES_MAX: usize = 256;

/// A running proxy; it ends when it is dropped.
#[derive(Debug)]
pub struct ReplayingProxy {
    address: SocketAddr,
    state: Arc<State>,
    _server: JoinSet<()>,
}

#[derive(Debug, Default)]
struct State {
    is_replaying: AtomicBool,
    replayed: AtomicU64,
    kept: AtomicU64,
}

impl ReplayingProxy {
    /// Starts a proxy on a free port. It passes and keeps frames until [`ReplayingProxy::start_replaying`].
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start(target: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State::default());
        let mut server = JoinSet::new();
        let server_state = Arc::clone(&state);
        server.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                if let Ok((near, _)) = listener.accept().await {
                    connections.spawn(proxy(near, target, Arc::clone(&server_state)));
                }
            }
        });
        Ok(Self {
            address,
            state,
            _server: server,
        })
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins to repeat kept frames.
    pub fn start_replaying(&self) {
        self.state.is_replaying.store(true, Ordering::Relaxed);
    }

    /// Number of frames that were kept, over all connections.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.state.kept.load(Ordering::Relaxed)
    }

    /// Number of frames that were repeated.
    #[must_use]
    pub fn replayed(&self) -> u64 {
        self.state.replayed.load(Ordering::Relaxed)
    }
}

async fn proxy(near: TcpStream, target: SocketAddr, state: Arc<State>) {
    let Ok(far) = TcpStream::connect(target).await else {
        return;
    };
    let ((mut near_in, near_out), (far_in, mut far_out)) = (near.into_split(), far.into_split());
    let (frames, to_write) = mpsc::channel(FRAMES_MAX);
    tokio::select! {
        _ = tokio::io::copy(&mut near_in, &mut far_out) => {}
        _ = read_frames(far_in, frames) => {}
        _ = write_frames(near_out, to_write, &state) => {}
    }
}

async fn read_frames(mut from: OwnedReadHalf, to: mpsc::Sender<Vec<u8>>) -> std::io::Result<()> {
    loop {
        let mut frame = vec![0; HEADER_BYTES];
        from.read_exact(&mut frame).await?;
        let length = frame.iter().take(3);
        let length = length.fold(0, |length, byte| (length << 8) | usize::from(*byte));
        frame.resize(HEADER_BYTES + length, 0);
        from.read_exact(frame.get_mut(HEADER_BYTES..).unwrap_or_default())
            .await?;
        if to.send(frame).await.is_err() {
            return Ok(());
        }
    }
}

async fn write_frames(
    mut to: OwnedWriteHalf,
    mut frames: mpsc::Receiver<Vec<u8>>,
    state: &State,
) -> std::io::Result<()> {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut tick = tokio::time::interval(INTERVAL);
    for number in 0_usize.. {
        tokio::select! {
            frame = frames.recv() => {
                let Some(frame) = frame else { break };
                to.write_all(&frame).await?;
                let is_message = frame.get(3) == Some(&DATA) && frame.len() > HEADER_BYTES;
                if is_message && kept.len() < KEPT_FRAMES_MAX {
                    kept.push(frame);
                    state.kept.fetch_add(1, Ordering::Relaxed);
                }
            }
            _ = tick.tick() => {
                // Frame 0 is the Hello, which a receiver rejects a second time.
                let old = kept.get(1 + number % kept.len().saturating_sub(1).max(1));
                if let Some(old) = old.filter(|_| state.is_replaying.load(Ordering::Relaxed)) {
                    to.write_all(old).await?;
                    state.replayed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
    Ok(())
}
