//! Both ends of a link, for tests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isotherm_ext_proc::clock::Clock;
use isotherm_ext_proc::config::Address;
use isotherm_ext_proc::peering::{
    Credentials, InboundHandler, LinkClient, LinkError, LinkEvent, LinkServer, LinkTimeouts,
    LocalIdentity, Message, PeerEndpoint, TransportSecurity,
};
use isotherm_regions::Heartbeat;
use isotherm_router::PeerReport;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::authority::{Authority, Files};

/// Bound on every wait, on a slow machine.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);

/// Timeouts with a short interval, and so a short backoff. The other bounds are long, so that a slow machine does not look dead.
pub(crate) fn timeouts() -> LinkTimeouts {
    LinkTimeouts {
        interval: Duration::from_millis(20),
        attempt_max: Duration::from_secs(5),
        silence_max: Duration::from_secs(5),
    }
}

/// Timeouts for tests that wait until they expire.
pub(crate) fn short_timeouts() -> LinkTimeouts {
    LinkTimeouts {
        attempt_max: Duration::from_millis(300),
        silence_max: Duration::from_millis(300),
        ..timeouts()
    }
}

/// A region with a certificate of `authority`.
pub(crate) fn tls_identity(
    authority: &Authority,
    region: &str,
    peers: &[&str],
) -> Arc<LocalIdentity> {
    file_identity(region, &authority.files(region), peers)
}

/// A region with these files, which it reads once.
pub(crate) fn file_identity(region: &str, files: &Files, peers: &[&str]) -> Arc<LocalIdentity> {
    let credentials = Credentials::load(region, files.paths()).unwrap();
    identity(region, TransportSecurity::Tls(Arc::new(credentials)), peers)
}

/// A region without TLS.
pub(crate) fn plain(region: &str, peers: &[&str]) -> Arc<LocalIdentity> {
    identity(region, TransportSecurity::Plaintext, peers)
}

pub(crate) fn identity(
    region: &str,
    security: TransportSecurity,
    peers: &[&str],
) -> Arc<LocalIdentity> {
    static INCARNATIONS: AtomicU64 = AtomicU64::new(1);
    let incarnation = INCARNATIONS.fetch_add(1, Ordering::Relaxed);
    let identity = LocalIdentity::new(region, incarnation, security);
    identity.set_peers(peers.iter().copied());
    Arc::new(identity)
}

/// Records messages, and replies to pings.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// The messages, each with the caller's region.
    pub(crate) messages: Mutex<Vec<(Arc<str>, Message)>>,
    pub(crate) rejections: Mutex<Vec<String>>,
    /// Number of pools in each heartbeat.
    pub(crate) pools: AtomicU64,
    /// Whether the handler waits instead of replying.
    pub(crate) is_stuck: AtomicBool,
}

impl InboundHandler for Recorder {
    fn on_message(&self, region: &Arc<str>, message: Message) -> Option<Message> {
        let received = (Arc::clone(region), message.clone());
        self.messages.lock().unwrap().push(received);
        while self.is_stuck.load(Ordering::SeqCst) {
            tokio::task::block_in_place(|| std::thread::sleep(Duration::from_millis(5)));
        }
        match message {
            Message::Ping => Some(heartbeat(self.pools.load(Ordering::SeqCst))),
            _ => None,
        }
    }

    fn on_rejected(&self, _: SocketAddr, why: &str) {
        self.rejections.lock().unwrap().push(why.to_owned());
    }
}

impl Recorder {
    pub(crate) fn count(&self) -> usize {
        self.messages.lock().unwrap().len()
    }

    /// The messages other than pings.
    pub(crate) fn one_way(&self) -> Vec<Message> {
        let messages = self.messages.lock().unwrap().clone();
        let messages = messages.into_iter().map(|(_, message)| message);
        messages
            .filter(|message| !matches!(message, Message::Ping))
            .collect()
    }
}

fn heartbeat(pools: u64) -> Message {
    let report = PeerReport {
        available: 3,
        replicas: 4,
        free_capacity: 5,
        queue: 1,
        drain_per_s: 2.5,
        ..PeerReport::default()
    };
    Message::Heartbeat(Heartbeat {
        version: "test".into(),
        has_gateway: true,
        pools: (0..pools)
            .map(|pool| (format!("model-{pool}").into(), report))
            .collect(),
    })
}

/// The called end of links. Dropping it stops it.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    pub(crate) recorder: Arc<Recorder>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Service {
    pub(crate) async fn start(identity: Arc<LocalIdentity>) -> Self {
        Self::start_at(identity, "127.0.0.1:0".parse().unwrap()).await
    }

    /// Starts a service of `eu`, whose peer is `us`.
    pub(crate) async fn start_eu(authority: &Authority) -> Self {
        Self::start(tls_identity(authority, "eu", &["us"])).await
    }

    pub(crate) async fn start_at(identity: Arc<LocalIdentity>, address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let recorder = Arc::new(Recorder::default());
        let stop = CancellationToken::new();
        let server = LinkServer::new(identity, recorder.clone(), stop.clone());
        Self {
            address,
            recorder,
            stop,
            task: tokio::spawn(server.run(listener)),
        }
    }

    pub(crate) fn begin_to_stop(&self) {
        self.stop.cancel();
    }

    /// Stops the service and waits for its end.
    pub(crate) async fn stop(mut self) {
        self.begin_to_stop();
        tokio::time::timeout(WAIT_MAX, &mut self.task)
            .await
            .unwrap()
            .unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The calling end of a link, and its events.
pub(crate) struct Client {
    pub(crate) link: LinkClient,
    events: mpsc::UnboundedReceiver<LinkEvent>,
}

impl Client {
    pub(crate) fn start(
        identity: &Arc<LocalIdentity>,
        region: &str,
        address: impl Into<Address>,
        timeouts: LinkTimeouts,
    ) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let peer = PeerEndpoint {
            region: region.to_owned(),
            address: address.into(),
        };
        let identity = Arc::clone(identity);
        let link = LinkClient::spawn(identity, peer, timeouts, Clock::start(), move |event| {
            // The test may have ended.
            let _ = sender.send(event);
        });
        Self { link, events }
    }

    pub(crate) async fn next(&mut self) -> LinkEvent {
        let next = tokio::time::timeout(WAIT_MAX, self.events.recv()).await;
        next.expect("an event in time").expect("the client runs")
    }

    /// Waits for the next event, which is a heartbeat.
    pub(crate) async fn wait_until_up(&mut self) -> Heartbeat {
        match self.next().await {
            Ok((_, heartbeat)) => heartbeat,
            Err(error) => panic!("not up: {error:?}"),
        }
    }

    /// Waits until the link is up, through failures.
    pub(crate) async fn wait_until_up_again(&mut self) {
        while self.next().await.is_err() {}
    }

    /// Waits for the next event, which is a failure.
    pub(crate) async fn wait_until_down(&mut self) -> LinkError {
        match self.next().await {
            Err(error) => error,
            Ok(heard) => panic!("not down: {heard:?}"),
        }
    }

    /// Waits until the link is down, through heartbeats.
    pub(crate) async fn wait_until_down_again(&mut self) -> LinkError {
        loop {
            if let Err(error) = self.next().await {
                return error;
            }
        }
    }
}

/// Waits until a condition holds.
pub(crate) async fn wait_until(mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(WAIT_MAX, wait)
        .await
        .expect("the condition in time");
}
