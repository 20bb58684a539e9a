//! The calling end of a link: dials a peer, keeps the stream, dials again.

mod attempt;
mod backoff;
mod connection;
mod resolve;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use isotherm_regions::{Incarnation, Session};
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;

use super::convert::from_wire;
use super::link_error::{RefusedError, UnreachableError};
use super::send_queue::{SendError, SendQueue};
use super::{LinkError, LinkTimeouts, LocalIdentity, Message};
use attempt::{Caller, Reached};
use backoff::Backoff;

/// Who is dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerEndpoint {
    /// The region that must answer; the own one for a sibling.
    pub region: String,
    /// Where its service listens: host:port. A name is resolved for each attempt.
    pub address: String,
}

/// What became of the link of `key`.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyedLinkEvent<K> {
    /// Which link.
    pub key: K,
    /// What became of it.
    pub event: LinkEvent,
}

/// What happens to a link.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkEvent {
    /// It is up: the other side is who it should be, and has said Hello. What was said on an earlier link and has not
    /// been sent is gone.
    Up {
        /// The link's number: new with each link.
        session: Session,
        /// Which start of the service is at the other end.
        incarnation: Incarnation,
    },
    /// It broke, or one more attempt failed. Comes for *each* failed attempt.
    Down {
        /// Why.
        why: LinkError,
        /// When the attempt began that failed, or that had made the link.
        began: Instant,
    },
    /// The other side said something.
    Message {
        /// The session that the message itself names. That of another link shows that it is old.
        session: Session,
        /// What it said.
        message: Message,
    },
}

/// One link. Dropping it cuts the link.
#[derive(Debug)]
pub struct Dialer {
    shared: Arc<Shared>,
    task: AbortHandle,
}

#[derive(Debug, Default)]
struct Shared {
    outbox: Mutex<Option<Arc<SendQueue>>>,
    redial: Notify,
}

impl Dialer {
    /// Dials `peer` until it is dropped. What happens goes to `events` under `key`; while nobody takes it from there,
    /// the link waits.
    pub fn spawn<K>(
        own: Arc<LocalIdentity>,
        peer: PeerEndpoint,
        pace: LinkTimeouts,
        key: K,
        events: mpsc::Sender<KeyedLinkEvent<K>>,
    ) -> Self
    where
        K: Clone + Send + Sync + 'static,
    {
        let shared = Arc::new(Shared::default());
        let keeper = Keeper {
            caller: Caller::new(own, peer, pace),
            pace,
            key,
            events,
            shared: Arc::clone(&shared),
        };
        let task = tokio::spawn(async move {
            // It ends when nobody takes events any more.
            let _ = keeper.keep().await;
        });
        Self {
            shared,
            task: task.abort_handle(),
        }
    }

    /// Says something, if the link is up. A ping takes the place of one that has not been sent yet.
    ///
    /// # Errors
    ///
    /// When there is no link, or too much waits to be said already.
    pub fn send(&self, message: &Message) -> Result<(), SendError> {
        let queue = self.shared.current().ok_or(SendError::NoLink)?;
        queue.send(message)
    }

    /// Drops the link, if there is one, and dials now.
    pub fn redial(&self) {
        self.shared.redial.notify_one();
    }
}

impl Drop for Dialer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn current(&self) -> Option<Arc<SendQueue>> {
        let outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        outbox.clone()
    }

    fn set(&self, outbox: Option<Arc<SendQueue>>) {
        *self.outbox.lock().unwrap_or_else(PoisonError::into_inner) = outbox;
    }
}

/// Nobody takes the events.
struct Deserted;

/// How a link ended.
enum End {
    Down(LinkError),
    Redial,
}

struct Keeper<K> {
    caller: Caller,
    pace: LinkTimeouts,
    key: K,
    events: mpsc::Sender<KeyedLinkEvent<K>>,
    shared: Arc<Shared>,
}

impl<K: Clone> Keeper<K> {
    async fn keep(mut self) -> Result<(), Deserted> {
        let mut pause = Backoff::new(self.pace);
        loop {
            let began = Instant::now();
            let end = tokio::select! {
                reached = self.caller.reach() => match reached {
                    Ok(reached) => {
                        pause.reset();
                        self.converse(reached).await?
                    }
                    Err(why) => End::Down(why),
                },
                () = self.shared.redial.notified() => End::Redial,
            };
            let End::Down(why) = end else {
                pause.reset();
                continue;
            };
            tracing::debug!(region = self.caller.region(), %why, "no link");
            self.tell(LinkEvent::Down { why, began }).await?;
            tokio::select! {
                () = tokio::time::sleep(pause.next()) => {}
                () = self.shared.redial.notified() => pause.reset(),
                () = self.events.closed() => return Err(Deserted),
            }
        }
    }

    /// Hands on what is heard until the link ends.
    async fn converse(&self, reached: Reached) -> Result<End, Deserted> {
        let outbox = Arc::clone(&reached.outbox);
        self.shared.set(Some(Arc::clone(&outbox)));
        let _cleared = Cleared(&self.shared);
        let up = LinkEvent::Up {
            session: outbox.session(),
            incarnation: reached.incarnation,
        };
        self.tell(up).await?;
        self.hear(reached, &outbox).await
    }

    async fn hear(&self, mut reached: Reached, outbox: &SendQueue) -> Result<End, Deserted> {
        let silence_max = self.pace.silence_max;
        loop {
            let silent_at = outbox.asked().unwrap_or_else(Instant::now) + silence_max;
            let message = tokio::select! {
                // What is here already has not been silent.
                biased;
                message = reached.inbound.message() => message,
                () = self.shared.redial.notified() => return Ok(End::Redial),
                () = self.events.closed() => return Err(Deserted),
                () = tokio::time::sleep_until(silent_at.into()) => {
                    if outbox.asked().is_some_and(|asked| asked.elapsed() >= silence_max) {
                        let after_ms = millis(silence_max);
                        return Ok(End::Down(LinkError::Unreachable(UnreachableError::Silent { after_ms })));
                    }
                    continue;
                }
            };
            let message = match message {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(End::Down(LinkError::Unreachable(UnreachableError::Closed))),
                Err(status) => return Ok(End::Down(reached.why(&status))),
            };
            outbox.heard();
            let session = Session(message.session);
            match from_wire(message) {
                Ok(Some(said)) => {
                    self.tell(LinkEvent::Message {
                        session,
                        message: said,
                    })
                    .await?
                }
                Ok(None) => {}
                Err(nonsense) => {
                    let why = RefusedError::Protocol(nonsense.to_string());
                    return Ok(End::Down(LinkError::Refused(why)));
                }
            }
        }
    }

    async fn tell(&self, event: LinkEvent) -> Result<(), Deserted> {
        let key = self.key.clone();
        let sent = self.events.send(KeyedLinkEvent { key, event }).await;
        sent.map_err(|_| Deserted)
    }
}

/// Nothing can be said any more when this is dropped.
struct Cleared<'a>(&'a Shared);

impl Drop for Cleared<'_> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// A number that nobody else draws: the standard library seeds its hashers from the system.
fn random() -> u64 {
    RandomState::new().hash_one(())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
