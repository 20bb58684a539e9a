//! Both ends of a link, for tests.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isotherm_ext_proc::config::TlsFiles;
use isotherm_ext_proc::peering::{
    Acceptor, Caller, Credentials, Dialer, KeyedLinkEvent, LinkError, LinkEvent, LinkTimeouts,
    LocalIdentity, Message, MessageHandler, PeerEndpoint, TransportSecurity,
};
use isotherm_regions::{Advertisement, Heartbeat, Ping, RecordVersion, Session};
use isotherm_router::PeerReport;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Nothing here should take longer, on however slow a machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Faster than in earnest where a test waits for the bound, and no faster, so that a slow machine is not a dead one.
pub(crate) fn pace() -> LinkTimeouts {
    LinkTimeouts {
        attempt_max: Duration::from_secs(5),
        silence_max: Duration::from_secs(5),
        pause_min: Duration::from_millis(20),
        pause_max: Duration::from_millis(100),
        greeting_max: Duration::from_secs(5),
    }
}

/// With bounds that a test is going to wait for.
pub(crate) fn impatient() -> LinkTimeouts {
    LinkTimeouts {
        attempt_max: Duration::from_millis(300),
        silence_max: Duration::from_millis(300),
        greeting_max: Duration::from_millis(300),
        ..pace()
    }
}

pub(crate) fn own(region: &str, files: TlsFiles, peers: &[&str]) -> Arc<LocalIdentity> {
    let credentials = Credentials::load(region, files).unwrap();
    own_with(region, TransportSecurity::Tls(Arc::new(credentials)), peers)
}

pub(crate) fn own_with(
    region: &str,
    protection: TransportSecurity,
    peers: &[&str],
) -> Arc<LocalIdentity> {
    static INCARNATIONS: AtomicU64 = AtomicU64::new(1);
    let incarnation = INCARNATIONS.fetch_add(1, Ordering::Relaxed);
    let own = LocalIdentity::new(region, incarnation, protection);
    own.set_peers(peers.iter().copied());
    Arc::new(own)
}

/// Keeps what it hears, and answers pings.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) heard: Mutex<Vec<(Caller, Session, Message)>>,
    pub(crate) turned_away: Mutex<Vec<String>>,
    pub(crate) open: Mutex<Vec<Caller>>,
    /// How many pools each heartbeat speaks of.
    pub(crate) pools: AtomicU64,
    /// Never answers while this is set.
    pub(crate) stuck: AtomicBool,
}

impl MessageHandler for Recorder {
    fn on_open(&self, caller: &Caller) {
        self.open.lock().unwrap().push(caller.clone());
    }

    async fn on_message(&self, caller: &Caller, session: Session, said: Message) -> Vec<Message> {
        self.heard
            .lock()
            .unwrap()
            .push((caller.clone(), session, said.clone()));
        while self.stuck.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        match said {
            Message::Ping(ping) => vec![heartbeat(&ping, self.pools.load(Ordering::SeqCst))],
            _ => Vec::new(),
        }
    }

    fn on_close(&self, caller: &Caller) {
        self.open.lock().unwrap().retain(|open| open != caller);
    }

    fn on_rejected(&self, _: Option<SocketAddr>, why: &str) {
        self.turned_away.lock().unwrap().push(why.to_owned());
    }
}

impl Recorder {
    pub(crate) fn count(&self) -> usize {
        self.heard.lock().unwrap().len()
    }
}

pub(crate) fn ping(session: Session, seq: u64) -> Message {
    Message::Ping(Ping {
        session,
        seq,
        record_version: RecordVersion::default(),
        advertisement: Advertisement::default(),
    })
}

fn heartbeat(ping: &Ping, pools: u64) -> Message {
    let report = PeerReport {
        available: 3,
        replicas: 4,
        free_capacity: 5,
        queue: 1,
        drain_per_s: 2.5,
    };
    Message::Heartbeat(Heartbeat {
        session: ping.session,
        ping_seq: ping.seq,
        version: "test".into(),
        advertisement: Advertisement {
            adopted: BTreeSet::from(["asia".into()]),
            ..Advertisement::default()
        },
        pools: (0..pools)
            .map(|pool| (format!("model-{pool}").into(), report))
            .collect(),
        views: Vec::new(),
    })
}

/// The answering end. Stops when dropped.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    pub(crate) recorder: Arc<Recorder>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Service {
    pub(crate) async fn start(own: Arc<LocalIdentity>) -> Self {
        Self::start_at(own, "127.0.0.1:0".parse().unwrap(), pace()).await
    }

    pub(crate) async fn start_at(
        own: Arc<LocalIdentity>,
        address: SocketAddr,
        pace: LinkTimeouts,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let recorder = Arc::new(Recorder::default());
        let acceptor = Acceptor::new(own, listener, pace, Arc::clone(&recorder)).unwrap();
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

    /// Stops it in good order.
    pub(crate) async fn stop(mut self) {
        self.begin_to_stop();
        tokio::time::timeout(PATIENCE, &mut self.task)
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

/// The calling end, and what happened to it.
pub(crate) struct Calling {
    pub(crate) dialer: Dialer,
    pub(crate) events: mpsc::Receiver<KeyedLinkEvent<u8>>,
}

impl Calling {
    pub(crate) fn start(
        own: &Arc<LocalIdentity>,
        region: &str,
        address: impl ToString,
        pace: LinkTimeouts,
    ) -> Self {
        let (tell, events) = mpsc::channel(8);
        let peer = PeerEndpoint {
            region: region.to_owned(),
            address: address.to_string(),
        };
        let dialer = Dialer::spawn(Arc::clone(own), peer, pace, 1, tell);
        Self { dialer, events }
    }

    pub(crate) async fn next(&mut self) -> LinkEvent {
        let next = tokio::time::timeout(PATIENCE, self.events.recv()).await;
        next.expect("nothing happens").expect("it ended").event
    }

    pub(crate) async fn up(&mut self) -> Session {
        match self.next().await {
            LinkEvent::Up { session, .. } => session,
            other => panic!("not up: {other:?}"),
        }
    }

    /// Up, however many attempts it takes.
    pub(crate) async fn up_again(&mut self) -> Session {
        loop {
            if let LinkEvent::Up { session, .. } = self.next().await {
                return session;
            }
        }
    }

    pub(crate) async fn down(&mut self) -> LinkError {
        match self.next().await {
            LinkEvent::Down { why, .. } => why,
            other => panic!("not down: {other:?}"),
        }
    }

    /// One ping and its answer.
    pub(crate) async fn asks(&mut self, session: Session, seq: u64) -> Heartbeat {
        self.dialer.send(&ping(session, seq)).unwrap();
        match self.next().await {
            LinkEvent::Message {
                message: Message::Heartbeat(heartbeat),
                session: said_on,
            } => {
                assert_eq!(said_on, session);
                assert_eq!(heartbeat.ping_seq, seq);
                heartbeat
            }
            other => panic!("no heartbeat: {other:?}"),
        }
    }
}

/// Waits until something is the case.
pub(crate) async fn eventually(mut is: impl FnMut() -> bool) {
    let wait = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .expect("it never came to be");
}
