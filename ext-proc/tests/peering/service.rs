//! Both ends of a link, for tests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isotherm_ext_proc::peering::{
    Acceptor, Caller, Credentials, Dialer, LinkError, LinkEvent, LinkTimeouts, LocalIdentity,
    Message, MessageHandler, PeerEndpoint, TransportSecurity,
};
use isotherm_regions::{Heartbeat, Ping, Session};
use isotherm_router::PeerReport;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::authority::{Authority, Files};

/// Bound on every wait, on a slow machine.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);

/// Timeouts with a short backoff. The other bounds are long, so that a slow machine does not look dead.
pub(crate) fn timeouts() -> LinkTimeouts {
    LinkTimeouts {
        attempt_max: Duration::from_secs(5),
        silence_max: Duration::from_secs(5),
        backoff_min: Duration::from_millis(20),
        backoff_max: Duration::from_millis(100),
        hello_max: Duration::from_secs(5),
    }
}

/// Timeouts for tests that wait until they expire.
pub(crate) fn short_timeouts() -> LinkTimeouts {
    LinkTimeouts {
        attempt_max: Duration::from_millis(300),
        silence_max: Duration::from_millis(300),
        hello_max: Duration::from_millis(300),
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
    pub(crate) messages: Mutex<Vec<(Caller, Session, Message)>>,
    pub(crate) rejections: Mutex<Vec<String>>,
    pub(crate) open_streams: Mutex<Vec<Caller>>,
    /// Number of pools in each heartbeat.
    pub(crate) pools: AtomicU64,
    /// Whether the handler waits instead of replying.
    pub(crate) is_stuck: AtomicBool,
}

impl MessageHandler for Recorder {
    fn on_open(&self, caller: &Caller) {
        self.open_streams.lock().unwrap().push(caller.clone());
    }

    async fn on_message(
        &self,
        caller: &Caller,
        session: Session,
        message: Message,
    ) -> Vec<Message> {
        self.messages
            .lock()
            .unwrap()
            .push((caller.clone(), session, message.clone()));
        while self.is_stuck.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        match message {
            Message::Ping(ping) => vec![heartbeat(&ping, self.pools.load(Ordering::SeqCst))],
            _ => Vec::new(),
        }
    }

    fn on_close(&self, caller: &Caller) {
        self.open_streams
            .lock()
            .unwrap()
            .retain(|open| open != caller);
    }

    fn on_rejected(&self, _: Option<SocketAddr>, why: &str) {
        self.rejections.lock().unwrap().push(why.to_owned());
    }
}

impl Recorder {
    pub(crate) fn count(&self) -> usize {
        self.messages.lock().unwrap().len()
    }
}

pub(crate) fn ping_message(session: Session, seq: u64) -> Message {
    Message::Ping(Ping { session, seq })
}

fn heartbeat(ping: &Ping, pools: u64) -> Message {
    let report = PeerReport {
        available: 3,
        replicas: 4,
        free_capacity: 5,
        queue: 1,
        drain_per_s: 2.5,
        ..PeerReport::default()
    };
    Message::Heartbeat(Heartbeat {
        session: ping.session,
        ping_seq: ping.seq,
        version: "test".into(),
        has_gateway: true,
        pools: (0..pools)
            .map(|pool| (format!("model-{pool}").into(), report))
            .collect(),
    })
}

/// The accepting end of links. Dropping it stops it.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    pub(crate) recorder: Arc<Recorder>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Service {
    pub(crate) async fn start(identity: Arc<LocalIdentity>) -> Self {
        Self::start_at(identity, "127.0.0.1:0".parse().unwrap(), timeouts()).await
    }

    /// Starts a service of `eu`, whose peer is `us`.
    pub(crate) async fn start_eu(authority: &Authority) -> Self {
        Self::start(tls_identity(authority, "eu", &["us"])).await
    }

    pub(crate) async fn start_at(
        identity: Arc<LocalIdentity>,
        address: SocketAddr,
        timeouts: LinkTimeouts,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let recorder = Arc::new(Recorder::default());
        let acceptor = Acceptor::new(identity, listener, timeouts, Arc::clone(&recorder)).unwrap();
        let (stop, stopping) = watch::channel(false);
        let task = tokio::spawn(async move { acceptor.run(stopping).await.unwrap() });
        Self {
            address,
            recorder,
            stop,
            task,
        }
    }

    pub(crate) fn begin_to_stop(&self) {
        self.stop.send_replace(true);
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
    pub(crate) dialer: Dialer,
    pub(crate) events: mpsc::Receiver<(u8, LinkEvent)>,
}

impl Client {
    pub(crate) fn start(
        identity: &Arc<LocalIdentity>,
        region: &str,
        address: impl ToString,
        timeouts: LinkTimeouts,
    ) -> Self {
        let (sender, events) = mpsc::channel(8);
        let peer = PeerEndpoint {
            region: region.to_owned(),
            address: address.to_string(),
        };
        let dialer = Dialer::spawn(Arc::clone(identity), peer, timeouts, 1, sender);
        Self { dialer, events }
    }

    pub(crate) async fn next(&mut self) -> LinkEvent {
        let next = tokio::time::timeout(WAIT_MAX, self.events.recv()).await;
        next.expect("an event in time").expect("the dialer runs").1
    }

    pub(crate) async fn wait_until_up(&mut self) -> Session {
        match self.next().await {
            LinkEvent::Up { session } => session,
            other => panic!("not up: {other:?}"),
        }
    }

    /// Waits until the link is up, through failed attempts.
    pub(crate) async fn wait_until_up_again(&mut self) -> Session {
        loop {
            if let LinkEvent::Up { session } = self.next().await {
                return session;
            }
        }
    }

    pub(crate) async fn wait_until_down(&mut self) -> LinkError {
        match self.next().await {
            LinkEvent::Down { error, .. } => error,
            other => panic!("not down: {other:?}"),
        }
    }

    /// Sends a ping and waits for its heartbeat.
    pub(crate) async fn ping(&mut self, session: Session, seq: u64) -> Heartbeat {
        self.dialer.send(&ping_message(session, seq)).unwrap();
        match self.next().await {
            LinkEvent::Message(Message::Heartbeat(heartbeat)) => {
                assert_eq!((heartbeat.session, heartbeat.ping_seq), (session, seq));
                heartbeat
            }
            other => panic!("no heartbeat: {other:?}"),
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
