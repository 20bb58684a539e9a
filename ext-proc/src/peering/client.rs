//! The calling end of a link: pings a service, and sends it placements and scaling shares.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use hyper::{Request, header};
use isotherm_regions::Heartbeat;
use isotherm_router::Time;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::codec::{decode, encode};
use super::host::{host, server_name};
use super::message;
use super::{LinkError, LocalIdentity, MESSAGE_BYTES_MAX, Message, TransportSecurity};
use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::config::{Address, HEARTBEATS_MISSED_MAX};
use crate::http_client::HttpClient;
use crate::tasks::{AbortOnDrop, vital};

/// The most messages that wait to be sent.
const MESSAGES_MAX: usize = 64;
/// The most bytes of these messages together.
const BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;
/// The most pings without a response. A round trip may be longer than the interval; then each ping needs a connection.
const PINGS_MAX: usize = HEARTBEATS_MISSED_MAX as usize;
/// Bound on one attempt. An attempt has four round trips: a second across the world, at a quarter of a second each.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);
/// Backoff after the first failure, in intervals; each further failure doubles it.
const BACKOFF_INTERVALS: u32 = 2;
/// Bound on the backoff, where the first one is not longer.
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// The service at the other end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerEndpoint {
    /// The region that the service must belong to; this service's own region for a sibling.
    pub region: String,
    /// The service's address.
    pub address: Address,
}

/// The timeouts of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkTimeouts {
    /// Time between two pings.
    pub interval: Duration,
    /// Bound on one attempt, from the TCP connection to the first response.
    pub attempt_max: Duration,
    /// Bound on the time from a message to its response. Then the link is down.
    pub silence_max: Duration,
}

impl LinkTimeouts {
    /// The timeouts for an interval of heartbeats.
    pub fn of(heartbeat: Duration) -> Self {
        Self {
            interval: heartbeat,
            attempt_max: ATTEMPT_MAX,
            silence_max: heartbeat * HEARTBEATS_MISSED_MAX,
        }
    }
}

/// The outcome of a ping: its time and the response of a peer with the right identity, or why the link is down. The client reports
/// *each* failure.
pub type LinkEvent = Result<(Time, Heartbeat), LinkError>;

/// The calling end of one link; dropping it closes its connections.
#[derive(Debug)]
pub struct LinkClient {
    caller: Arc<Caller>,
    queue: mpsc::Sender<QueuedMessage>,
    bytes: Arc<Semaphore>,
    _tasks: [AbortOnDrop; 2],
}

/// An encoded message and its share of [`BYTES_MAX`].
type QueuedMessage = (Bytes, OwnedSemaphorePermit);

impl LinkClient {
    /// Pings `peer` until the client is dropped, and passes each outcome to `on_event`.
    pub fn spawn(
        identity: Arc<LocalIdentity>,
        peer: PeerEndpoint,
        timeouts: LinkTimeouts,
        clock: Clock,
        on_event: impl Fn(LinkEvent) + Send + Sync + 'static,
    ) -> Self {
        let caller = Arc::new(Caller {
            identity,
            peer,
            timeouts,
            up: Mutex::default(),
        });
        let (queue, queued) = mpsc::channel(MESSAGES_MAX);
        let sender = tokio::spawn(vital(
            "messages to a peer",
            send_queued(Arc::clone(&caller), queued),
        ));
        let pinging = Arc::clone(&caller);
        let pinger = tokio::spawn(vital("pings of a peer", async move {
            pinging.run(clock, on_event).await
        }));
        Self {
            caller,
            queue,
            bytes: Arc::new(Semaphore::new(BYTES_MAX)),
            _tasks: [sender, pinger].map(|task| AbortOnDrop(task.abort_handle())),
        }
    }

    /// Sends an encoded message behind the earlier ones. Returns whether the link is up and has taken the message, which may still
    /// be lost on the way. A link takes none while the peer reads more slowly than this service sends.
    pub fn send(&self, message: Bytes) -> bool {
        let bytes = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.bytes).try_acquire_many_owned(bytes);
        let permit = permit.ok().filter(|_| self.caller.up.lock().is_some());
        permit.is_some_and(|permit| self.queue.try_send((message, permit)).is_ok())
    }
}

/// Sends the messages of a queue in order, while the link is up.
async fn send_queued(caller: Arc<Caller>, mut queued: mpsc::Receiver<QueuedMessage>) {
    while let Some((message, _permit)) = queued.recv().await {
        let Some(http) = caller.up.lock().clone() else {
            continue;
        };
        let sent = caller.post(&http, message, caller.timeouts.silence_max);
        if let Err(error) = sent.await {
            tracing::debug!(region = caller.peer.region, %error, "message lost");
        }
    }
}

/// The state that the two tasks of a link share.
#[derive(Debug)]
struct Caller {
    identity: Arc<LocalIdentity>,
    peer: PeerEndpoint,
    timeouts: LinkTimeouts,
    /// The HTTP client of the link while it is up.
    up: Mutex<Option<HttpClient>>,
}

impl Caller {
    async fn run(&self, clock: Clock, on_event: impl Fn(LinkEvent)) {
        let backoff_min = self.timeouts.interval * BACKOFF_INTERVALS;
        let mut backoff = Backoff::new(backoff_min, BACKOFF_MAX.max(backoff_min));
        loop {
            let ended = async {
                let opened = (self.identity.certificate().loaded, self.open().await?);
                backoff.reset();
                self.ping_until_failure(opened, clock, &on_event).await
            };
            let Err(error) = ended.await;
            *self.up.lock() = None;
            tracing::debug!(region = self.peer.region, %error, "no link");
            on_event(Err(error));
            backoff.wait().await;
        }
    }

    /// Sends a ping every interval. Ends with the first ping that fails.
    async fn ping_until_failure(
        &self,
        (mut loaded, mut http): (u64, HttpClient),
        clock: Clock,
        on_event: &impl Fn(LinkEvent),
    ) -> Result<Infallible, LinkError> {
        let mut ticks = interval(self.timeouts.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut pings = FuturesUnordered::new();
        loop {
            tokio::select! {
                _ = ticks.tick(), if pings.len() < PINGS_MAX => {
                    let before = std::mem::replace(&mut loaded, self.identity.certificate().loaded);
                    // The client's pool would go on with earlier certificates. New ones that the peer refuses cut no connection.
                    if before != loaded && let Ok(opened) = self.open().await {
                        http = opened;
                    }
                    pings.push(self.ping(http.clone(), clock));
                }
                Some(outcome) = pings.next() => {
                    let heard = outcome?;
                    *self.up.lock() = Some(http.clone());
                    on_event(Ok(heard));
                }
            }
        }
    }

    async fn ping(&self, http: HttpClient, clock: Clock) -> LinkEvent {
        let sent = clock.now();
        let message = encode(&Message::Ping).unwrap_or_default();
        match self.post(&http, message, self.timeouts.silence_max).await? {
            Some(Message::Heartbeat(heartbeat)) => Ok((sent, heartbeat)),
            _ => Err(LinkError::protocol(
                "the response to a ping is no heartbeat",
            )),
        }
    }

    /// Returns a client with the current certificate and open connections: a handshake would else count in the round trip of a
    /// ping. With TLS 1.3 a client learns after its handshake whether the server accepts its certificate.
    async fn open(&self) -> Result<HttpClient, LinkError> {
        let started = Instant::now();
        let http = self.client()?;
        let is_accepted = || self.post(&http, Bytes::new(), self.timeouts.attempt_max);
        is_accepted().await?;
        if started.elapsed() > self.timeouts.interval {
            try_join_all((0..PINGS_MAX).map(|_| is_accepted())).await?;
        }
        Ok(http)
    }

    fn client(&self) -> Result<HttpClient, LinkError> {
        let PeerEndpoint { region, address } = &self.peer;
        match self.identity.security() {
            TransportSecurity::Tls(credentials) => {
                let name = server_name(region).map_err(LinkError::Unreachable)?;
                let config = credentials.current().client.clone();
                Ok(HttpClient::with_tls(config, Some(name)))
            }
            TransportSecurity::Plaintext if address.is_loopback() => Ok(HttpClient::new()),
            TransportSecurity::Plaintext => Err(LinkError::Unreachable(format!(
                "{address} is not a loopback address, and there is no TLS"
            ))),
        }
    }

    /// Sends an encoded message, and returns the response.
    async fn post(
        &self,
        http: &HttpClient,
        message: Bytes,
        time_max: Duration,
    ) -> Result<Option<Message>, LinkError> {
        let PeerEndpoint { region, address } = &self.peer;
        let request = Request::post(format!("{}://{address}{}", http.scheme(), message::PATH))
            .header(header::HOST, host(region))
            .header(message::REGION_HEADER, self.identity.region())
            .header(message::INCARNATION_HEADER, self.identity.incarnation())
            .body(message)
            .map_err(|error| LinkError::Unreachable(error.to_string()))?;
        let response = http.fetch(request, time_max, MESSAGE_BYTES_MAX).await?;
        if !response.status().is_success() {
            return Err(LinkError::status(response.status(), response.body()));
        }
        decode(response.body()).map_err(LinkError::protocol)
    }
}
