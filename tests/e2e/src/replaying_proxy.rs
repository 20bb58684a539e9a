//! A proxy of the peering protocol that repeats old heartbeats, as an attacker in the network could.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use anyhow::ensure;
use bytes::Bytes;
use hyper::Request;
use isotherm_harness::TcpServer;
use parking_lot::Mutex;

use crate::peering_server::serve_peering;

/// Heartbeats kept.
const KEPT_MAX: usize = 16;

/// A running proxy; it ends when it is dropped.
#[derive(Debug)]
pub struct ReplayingProxy {
    server: TcpServer,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    target: SocketAddr,
    client: reqwest::Client,
    is_replaying: AtomicBool,
    requests: AtomicUsize,
    replayed: AtomicU64,
    kept: Mutex<Vec<Bytes>>,
}

impl ReplayingProxy {
    /// Starts a proxy on a free port. It passes and keeps heartbeats until [`ReplayingProxy::start_replaying`].
    pub async fn start(target: SocketAddr) -> anyhow::Result<Self> {
        let state = Arc::new(State {
            target,
            client: reqwest::Client::new(),
            is_replaying: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            replayed: AtomicU64::new(0),
            kept: Mutex::default(),
        });
        let state_of_server = Arc::clone(&state);
        let server = serve_peering(move |request| Arc::clone(&state_of_server).reply(request));
        Ok(Self {
            server: server.await?,
            state,
        })
    }

    /// The address on which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Begins to answer every other request with a kept heartbeat.
    pub fn start_replaying(&self) {
        self.state.is_replaying.store(true, Ordering::Relaxed);
    }

    /// Number of heartbeats that were kept.
    pub fn kept(&self) -> usize {
        self.state.kept.lock().len()
    }

    /// Number of heartbeats that were repeated.
    pub fn replayed(&self) -> u64 {
        self.state.replayed.load(Ordering::Relaxed)
    }
}

impl State {
    async fn reply(self: Arc<Self>, request: Request<Bytes>) -> anyhow::Result<Bytes> {
        let (head, body) = request.into_parts();
        if body.is_empty() {
            // The caller asks whether it is accepted.
            return Ok(Bytes::new());
        }
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        if number.is_multiple_of(2) && self.is_replaying.load(Ordering::Relaxed) {
            let kept = self.kept.lock();
            let old = kept.get(number / 2 % kept.len().max(1)).cloned();
            self.replayed.fetch_add(1, Ordering::Relaxed);
            return Ok(old.unwrap_or_default());
        }
        let url = format!("http://{}{}", self.target, head.uri.path());
        let sent = self.client.post(url).headers(head.headers).body(body);
        let response = sent.send().await?;
        ensure!(response.status().is_success(), "{}", response.status());
        let heartbeat = response.bytes().await?;
        let mut kept = self.kept.lock();
        if kept.len() < KEPT_MAX {
            kept.push(heartbeat.clone());
        }
        Ok(heartbeat)
    }
}
