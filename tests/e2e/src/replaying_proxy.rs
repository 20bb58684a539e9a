//! A proxy of the peering protocol that repeats old heartbeats, as an attacker in the network could.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use hyper::http::uri::PathAndQuery;
use isotherm_ext_proc::peering::wire::{self, Envelope, Payload};
use isotherm_harness::TcpServer;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::peering_server::{Replies, serve_peering};

/// Heartbeats kept from the start of a stream.
const KEPT_MAX: usize = 16;
/// Pause between two repeated heartbeats.
const INTERVAL: Duration = Duration::from_millis(50);
/// Replies that may wait for the caller to read them.
const REPLIES_MAX: usize = 64;

/// A running proxy; it ends when it is dropped.
#[derive(Debug)]
pub struct ReplayingProxy {
    server: TcpServer,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    is_replaying: AtomicBool,
    replayed: AtomicU64,
    kept: AtomicU64,
}

impl ReplayingProxy {
    /// Starts a proxy on a free port. It passes and keeps heartbeats until [`ReplayingProxy::start_replaying`].
    pub async fn start(target: SocketAddr) -> anyhow::Result<Self> {
        let state = Arc::new(State::default());
        let state_of_server = Arc::clone(&state);
        let server = serve_peering(move |messages| {
            connect(target, messages, Arc::clone(&state_of_server)).boxed()
        });
        Ok(Self {
            server: server.await?,
            state,
        })
    }

    /// The address on which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Begins to repeat kept heartbeats.
    pub fn start_replaying(&self) {
        self.state.is_replaying.store(true, Ordering::Relaxed);
    }

    /// Number of heartbeats that were kept, over all streams.
    pub fn kept(&self) -> u64 {
        self.state.kept.load(Ordering::Relaxed)
    }

    /// Number of heartbeats that were repeated.
    pub fn replayed(&self) -> u64 {
        self.state.replayed.load(Ordering::Relaxed)
    }
}

/// Opens a stream to the target for a caller's messages; returns the replies.
async fn connect(
    target: SocketAddr,
    messages: Streaming<Envelope>,
    state: Arc<State>,
) -> Result<Response<Replies>, Status> {
    let unavailable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
    let endpoint = Endpoint::try_from(format!("http://{target}")).map_err(unavailable)?;
    let mut client = Grpc::new(endpoint.connect().await.map_err(unavailable)?);
    client.ready().await.map_err(unavailable)?;
    let messages = messages.filter_map(|message| std::future::ready(message.ok()));
    let path = PathAndQuery::from_static(wire::PATH);
    let codec = ProstCodec::<Envelope, Envelope>::default();
    let request = Request::new(messages);
    let replies = client.streaming(request, path, codec).await?.into_inner();
    let (sender, forwarded) = mpsc::channel(REPLIES_MAX);
    tokio::spawn(forward(replies, sender, state));
    Ok(Response::new(ReceiverStream::new(forwarded).boxed()))
}

/// Forwards replies until either side closes the stream, and repeats heartbeats between them.
async fn forward(
    mut from: Streaming<Envelope>,
    to: mpsc::Sender<Result<Envelope, Status>>,
    state: Arc<State>,
) {
    let mut kept: Vec<Envelope> = Vec::new();
    let mut tick = tokio::time::interval(INTERVAL);
    for number in 0_usize.. {
        let message = tokio::select! {
            message = from.next() => {
                let Some(message) = message else { return };
                let heartbeat = message.as_ref().ok();
                let heartbeat = heartbeat
                    .filter(|message| matches!(message.payload, Some(Payload::Heartbeat(_))));
                if let Some(heartbeat) = heartbeat.filter(|_| kept.len() < KEPT_MAX) {
                    kept.push(heartbeat.clone());
                    state.kept.fetch_add(1, Ordering::Relaxed);
                }
                message
            }
            _ = tick.tick() => {
                let old = kept.get(number % kept.len().max(1));
                let Some(old) = old.filter(|_| state.is_replaying.load(Ordering::Relaxed)) else {
                    continue;
                };
                state.replayed.fetch_add(1, Ordering::Relaxed);
                Ok(old.clone())
            }
        };
        if to.send(message).await.is_err() {
            return;
        }
    }
}
