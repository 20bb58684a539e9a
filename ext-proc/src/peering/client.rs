//! The calling end of a link: pings a service, and sends it placements and scaling shares.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use isotherm_regions::Heartbeat;
use isotherm_router::Time;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::codec::encode;
use super::connection::{Connection, Connector, PeerEndpoint};
use super::timeouts::SILENCE_INTERVALS;
use super::{LinkError, LinkTimeouts, LocalIdentity, MESSAGE_BYTES_MAX, Message};
use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::tasks::AbortOnDrop;

/// The most messages that wait to be sent.
const MESSAGES_MAX: usize = 64;
/// The most bytes of these messages together.
const BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;
/// The most pings without a response. A round trip may be longer than the interval; then each ping needs a connection.
const PINGS_MAX: usize = SILENCE_INTERVALS as usize;

/// The outcome of a ping.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkEvent {
    /// The peer has the right identity and has answered the ping that was sent at this time. The link is up.
    Heartbeat(Time, Heartbeat),
    /// A ping or an attempt to connect failed. The client reports *each* failure.
    Down {
        /// Why the link is down.
        error: LinkError,
    },
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The link is down.
    #[error("there is no such link")]
    NoLink,
    /// The peer reads more slowly than this service sends.
    #[error("the send queue is full")]
    Full,
}

/// The calling end of one link; dropping it closes its connections.
#[derive(Debug)]
pub struct LinkClient {
    is_up: Arc<AtomicBool>,
    queue: mpsc::Sender<QueuedMessage>,
    bytes: Arc<Semaphore>,
    _tasks: [AbortOnDrop; 2],
}

/// An encoded message and its share of [`BYTES_MAX`].
type QueuedMessage = (Bytes, OwnedSemaphorePermit);

impl LinkClient {
    /// Pings `peer` until the client is dropped. Events go to `events` with `key`; while `events` is full, the link waits.
    pub fn spawn<K>(
        identity: Arc<LocalIdentity>,
        peer: PeerEndpoint,
        timeouts: LinkTimeouts,
        clock: Clock,
        (key, events): (K, mpsc::Sender<(K, LinkEvent)>),
    ) -> Self
    where
        K: Clone + Send + Sync + 'static,
    {
        let connector = Arc::new(Connector {
            identity,
            peer,
            timeouts,
        });
        let is_up = Arc::new(AtomicBool::new(false));
        let (queue, queued) = mpsc::channel(MESSAGES_MAX);
        let sender = send_queued(Arc::clone(&connector), Arc::clone(&is_up), queued);
        let sender = tokio::spawn(sender);
        let pinger = Pinger {
            connector,
            clock,
            key,
            events,
            is_up: Arc::clone(&is_up),
            idle: Mutex::default(),
        };
        // The task ends when the receiver of events is gone.
        let pinger = tokio::spawn(async move { drop(pinger.run().await) });
        Self {
            is_up,
            queue,
            bytes: Arc::new(Semaphore::new(BYTES_MAX)),
            _tasks: [pinger, sender].map(|task| AbortOnDrop(task.abort_handle())),
        }
    }

    /// Sends an encoded message behind the earlier ones, if the link is up. A message that fails on the way is lost.
    /// Fails when the link is down, or the queue is full.
    pub fn send(&self, message: Bytes) -> Result<(), SendError> {
        if !self.is_up.load(Ordering::Relaxed) {
            return Err(SendError::NoLink);
        }
        let bytes = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.bytes).try_acquire_many_owned(bytes);
        let permit = permit.map_err(|_| SendError::Full)?;
        let queued = self.queue.try_send((message, permit));
        queued.map_err(|_| SendError::Full)
    }
}

/// Sends the messages of a queue in order, on one connection, while the link is up.
async fn send_queued(
    connector: Arc<Connector>,
    is_up: Arc<AtomicBool>,
    mut queued: mpsc::Receiver<QueuedMessage>,
) {
    let mut kept: Option<Connection> = None;
    while let Some((message, _permit)) = queued.recv().await {
        if !is_up.load(Ordering::Relaxed) {
            continue;
        }
        let sent = async {
            let connection = match kept.take().filter(|kept| !kept.is_closed()) {
                Some(connection) => connection,
                None => connector.open().await?,
            };
            let silence_max = connector.timeouts.silence_max;
            let sent = timeout(silence_max, connector.exchange(connection, message)).await;
            sent.unwrap_or_else(|_| Err(LinkError::timeout("the response", silence_max)))
        };
        match sent.await {
            Ok((connection, _)) => kept = Some(connection),
            Err(error) => {
                tracing::debug!(region = connector.peer.region, %error, "message lost");
            }
        }
    }
}

/// The receiver of events is gone.
struct NoReceiver;

struct Pinger<K> {
    connector: Arc<Connector>,
    clock: Clock,
    key: K,
    events: mpsc::Sender<(K, LinkEvent)>,
    is_up: Arc<AtomicBool>,
    /// Connections without a ping under way, the last used one last.
    idle: Mutex<Vec<Connection>>,
}

impl<K: Clone> Pinger<K> {
    async fn run(self) -> Result<(), NoReceiver> {
        let Connector { peer, timeouts, .. } = &*self.connector;
        let mut backoff = Backoff::new(timeouts.backoff_min, timeouts.backoff_max);
        loop {
            let error = match self.connector.open().await {
                Ok(connection) => {
                    backoff.reset();
                    self.idle.lock().push(connection);
                    self.ping_until_failure().await?
                }
                Err(error) => error,
            };
            self.is_up.store(false, Ordering::Relaxed);
            self.idle.lock().clear();
            tracing::debug!(region = peer.region, %error, "no link");
            self.report(LinkEvent::Down { error }).await?;
            tokio::select! {
                () = backoff.wait() => {}
                () = self.events.closed() => return Err(NoReceiver),
            }
        }
    }

    /// Sends a ping every interval. Ends with the first ping that fails.
    async fn ping_until_failure(&self) -> Result<LinkError, NoReceiver> {
        let mut ticks = interval(self.connector.timeouts.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut pings = FuturesUnordered::new();
        loop {
            tokio::select! {
                _ = ticks.tick(), if pings.len() < PINGS_MAX => pings.push(self.ping()),
                Some(outcome) = pings.next() => match outcome {
                    Ok((sent, heartbeat)) => {
                        self.is_up.store(true, Ordering::Relaxed);
                        self.report(LinkEvent::Heartbeat(sent, heartbeat)).await?;
                    }
                    Err(error) => return Ok(error),
                },
                () = self.events.closed() => return Err(NoReceiver),
            }
        }
    }

    async fn ping(&self) -> Result<(Time, Heartbeat), LinkError> {
        let connection = match self.take_idle() {
            Some(connection) => connection,
            None => self.connector.open().await?,
        };
        let sent = self.clock.now();
        let message = encode(&Message::Ping).unwrap_or_default();
        let silence_max = self.connector.timeouts.silence_max;
        let answered = timeout(silence_max, self.connector.exchange(connection, message)).await;
        let (connection, answer) = answered.map_err(|_| {
            LinkError::Unreachable(format!("no answer for {} ms", silence_max.as_millis()))
        })??;
        self.idle.lock().push(connection);
        match answer {
            Some(Message::Heartbeat(heartbeat)) => Ok((sent, heartbeat)),
            _ => Err(LinkError::protocol(
                "the response to a ping is no heartbeat",
            )),
        }
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        idle.retain(|connection| !connection.is_closed());
        idle.pop()
    }

    async fn report(&self, event: LinkEvent) -> Result<(), NoReceiver> {
        let sent = self.events.send((self.key.clone(), event)).await;
        sent.map_err(|_| NoReceiver)
    }
}
