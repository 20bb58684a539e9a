//! Somebody in the network who repeats what was said before: a proxy of plain HTTP/2 that keeps the answers that pass,
//! and sends old ones again between the new ones, as long as the connection lives.
//!
//! An answer is a `DATA` frame, which names its stream and nothing else that would show its age, so a copy of it is a
//! message like any other to whoever reads it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// In front of each frame: length, type, flags, stream.
const HEADER_BYTES: usize = 9;
/// The type of a frame of data.
const DATA: u8 = 0;
/// How many frames of the beginning of a connection are kept.
const KEPT_MAX: usize = 16;
/// How often an old one is sent again.
const INTERVAL: Duration = Duration::from_millis(50);
/// Frames that wait to be written.
const FRAMES_MAX: usize = 256;

/// A running proxy; it ends when it is dropped.
#[derive(Debug)]
pub struct ReplayingProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _server: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Shared {
    repeats: AtomicBool,
    repeated: AtomicU64,
}

impl ReplayingProxy {
    /// Starts one on a free port. It only keeps what passes, until it is told to repeat.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start(target: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let mut server = JoinSet::new();
        let for_server = Arc::clone(&shared);
        server.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                if let Ok((near, _)) = listener.accept().await {
                    connections.spawn(carry(near, target, Arc::clone(&for_server)));
                }
            }
        });
        Ok(Self {
            address,
            shared,
            _server: server,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on old answers are sent again.
    pub fn start_replaying(&self) {
        self.shared.repeats.store(true, Ordering::Relaxed);
    }

    /// How many were.
    #[must_use]
    pub fn replayed(&self) -> u64 {
        self.shared.repeated.load(Ordering::Relaxed)
    }
}

async fn carry(near: TcpStream, target: SocketAddr, shared: Arc<Shared>) {
    let Ok(far) = TcpStream::connect(target).await else {
        return;
    };
    let ((mut near_in, near_out), (far_in, mut far_out)) = (near.into_split(), far.into_split());
    let (frames, to_write) = mpsc::channel(FRAMES_MAX);
    tokio::select! {
        _ = tokio::io::copy(&mut near_in, &mut far_out) => {}
        _ = split(far_in, frames) => {}
        _ = write(near_out, to_write, &shared) => {}
    }
}

/// Cuts what comes into frames.
async fn split(mut from: OwnedReadHalf, to: mpsc::Sender<Vec<u8>>) -> std::io::Result<()> {
    loop {
        let mut frame = vec![0; HEADER_BYTES];
        from.read_exact(&mut frame).await?;
        let length = frame
            .iter()
            .take(3)
            .fold(0, |length, byte| (length << 8) | usize::from(*byte));
        let mut payload = vec![0; length];
        from.read_exact(&mut payload).await?;
        frame.extend(payload);
        if to.send(frame).await.is_err() {
            return Ok(());
        }
    }
}

async fn write(
    mut to: OwnedWriteHalf,
    mut frames: mpsc::Receiver<Vec<u8>>,
    shared: &Shared,
) -> std::io::Result<()> {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut tick = tokio::time::interval(INTERVAL);
    for turn in 0_usize.. {
        tokio::select! {
            frame = frames.recv() => {
                let Some(frame) = frame else { break };
                to.write_all(&frame).await?;
                if frame.get(3) == Some(&DATA) && frame.len() > HEADER_BYTES && kept.len() < KEPT_MAX {
                    kept.push(frame);
                }
            }
            _ = tick.tick() => {
                // The first of all is the greeting, which only a fool sends twice.
                let old = kept.get(1 + turn % kept.len().saturating_sub(1).max(1));
                if let Some(old) = old.filter(|_| shared.repeats.load(Ordering::Relaxed)) {
                    to.write_all(old).await?;
                    shared.repeated.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
    Ok(())
}
