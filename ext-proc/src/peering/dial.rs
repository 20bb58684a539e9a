//! The calling end of a link: dials a peer, keeps the stream, and redials after a backoff.

mod attempt;
mod connection;

use std::sync::Arc;
use std::time::Instant;

use isotherm_regions::Session;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::convert::decode;
use super::send_queue::{SendError, SendQueue};
use super::{LinkError, LinkTimeouts, LocalIdentity, Message};
use crate::backoff::Backoff;
use crate::tasks::AbortOnDrop;
use attempt::{Connector, EstablishedLink};

/// The service at the other end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerEndpoint {
    /// The region that the service must belong to; this service's own region for a sibling.
    pub region: String,
    /// The service's address, `host:port`. Each attempt resolves the host.
    pub address: String,
}

/// A change of a link, or a message on it.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkEvent {
    /// The link is up: the peer has the right identity and has sent its Hello. Messages for an earlier link are lost.
    Up {
        /// Number of the link; each link has another.
        session: Session,
    },
    /// The link broke, or another attempt failed. The dialer reports *each* failed attempt.
    Down {
        /// Why the link is down.
        error: LinkError,
    },
    /// The peer has sent a message.
    Message(Message),
}

/// The calling end of one link; dropping the dialer cuts the link.
#[derive(Debug)]
pub struct Dialer {
    current: Arc<CurrentQueue>,
    _task: AbortOnDrop,
}

/// The queue of the link that is up; `None` while the link is down.
type CurrentQueue = Mutex<Option<Arc<SendQueue>>>;

impl Dialer {
    /// Dials `peer` until it is dropped. Events go to `events` with `key`; while `events` is full, the link waits.
    pub fn spawn<K>(
        identity: Arc<LocalIdentity>,
        peer: PeerEndpoint,
        timeouts: LinkTimeouts,
        key: K,
        events: mpsc::Sender<(K, LinkEvent)>,
    ) -> Self
    where
        K: Clone + Send + Sync + 'static,
    {
        let current = Arc::new(CurrentQueue::default());
        let task = LinkTask {
            connector: Connector {
                identity,
                peer,
                timeouts,
            },
            key,
            events,
            current: Arc::clone(&current),
        };
        let task = tokio::spawn(async move {
            // The task ends when the receiver of events is gone.
            let _ = task.run().await;
        });
        Self {
            current,
            _task: AbortOnDrop(task.abort_handle()),
        }
    }

    /// Sends a message, if the link is up. A ping replaces a ping that waits.
    /// Fails when there is no link, or its queue is full.
    pub fn send(&self, message: &Message) -> Result<(), SendError> {
        let queue = self.current.lock().clone();
        queue.ok_or(SendError::NoLink)?.push(message)
    }
}

/// The receiver of events is gone.
struct NoReceiver;

struct LinkTask<K> {
    connector: Connector,
    key: K,
    events: mpsc::Sender<(K, LinkEvent)>,
    current: Arc<CurrentQueue>,
}

impl<K: Clone> LinkTask<K> {
    async fn run(self) -> Result<(), NoReceiver> {
        let Connector { peer, timeouts, .. } = &self.connector;
        let mut backoff = Backoff::new(timeouts.backoff_min, timeouts.backoff_max);
        loop {
            let error = match self.connector.connect().await {
                Ok(link) => {
                    backoff.reset();
                    self.keep(link).await?
                }
                Err(error) => error,
            };
            tracing::debug!(region = peer.region, %error, "no link");
            self.report(LinkEvent::Down { error }).await?;
            tokio::select! {
                () = backoff.wait() => {}
                () = self.events.closed() => return Err(NoReceiver),
            }
        }
    }

    /// Reports a link and its messages until it ends.
    async fn keep(&self, link: EstablishedLink) -> Result<LinkError, NoReceiver> {
        let queue = Arc::clone(&link.queue);
        *self.current.lock() = Some(Arc::clone(&queue));
        let _guard = QueueGuard(&self.current);
        let session = queue.session();
        self.report(LinkEvent::Up { session }).await?;
        self.receive(link, &queue).await
    }

    async fn receive(
        &self,
        mut link: EstablishedLink,
        queue: &SendQueue,
    ) -> Result<LinkError, NoReceiver> {
        let silence_max = self.connector.timeouts.silence_max;
        loop {
            let silent_at = queue.pinged_at().unwrap_or_else(Instant::now) + silence_max;
            let envelope = tokio::select! {
                // A message that has arrived ends the silence, even if the timer has fired.
                biased;
                envelope = link.inbound.message() => envelope,
                () = self.events.closed() => return Err(NoReceiver),
                () = tokio::time::sleep_until(silent_at.into()) => {
                    if queue.pinged_at().is_some_and(|pinged| pinged.elapsed() >= silence_max) {
                        let reason = format!("no answer for {} ms", silence_max.as_millis());
                        return Ok(LinkError::Unreachable(reason));
                    }
                    continue;
                }
            };
            let envelope = match envelope {
                Ok(Some(envelope)) => envelope,
                Ok(None) => return Ok(LinkError::closed()),
                Err(status) => return Ok(link.connection.error(&status)),
            };
            queue.on_message();
            match decode(envelope) {
                Ok(Some(message)) => self.report(LinkEvent::Message(message)).await?,
                Ok(None) => {}
                Err(error) => return Ok(LinkError::protocol(error)),
            }
        }
    }

    async fn report(&self, event: LinkEvent) -> Result<(), NoReceiver> {
        let sent = self.events.send((self.key.clone(), event)).await;
        sent.map_err(|_| NoReceiver)
    }
}

/// Guard that removes the queue when the link ends.
struct QueueGuard<'a>(&'a CurrentQueue);

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}
