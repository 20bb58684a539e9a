//! What is to be said on a link.
//!
//! A peer that reads slowly must not make this service grow, nor be asked what nobody wants to know any more: of pings
//! only the newest is kept, and of everything else a few messages. What does not fit is handed back to who said it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use isotherm_regions::Session;
use prost::Message as _;
use tokio::sync::Notify;

use super::convert::{has_bounds, to_wire};
use super::{MESSAGE_BYTES_MAX, Message, wire};

/// How many messages other than pings may wait, and how long they may be together, in bytes.
const MESSAGES_MAX: usize = 64;
const BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;

/// Why something was not said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The link is down, or it is another one than that which a ping names.
    #[error("there is no such link")]
    NoLink,
    /// The other side does not read as fast as is spoken.
    #[error("too much waits to be said")]
    Full,
    /// The message is longer than [`MESSAGE_BYTES_MAX`], or has more of something than the other side takes.
    #[error("the message is too long")]
    TooLong,
}

/// What waits to be said on one link.
#[derive(Debug)]
pub(super) struct SendQueue {
    session: Session,
    waiting: Mutex<Waiting>,
    ready: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    ping: Option<wire::Envelope>,
    others: VecDeque<wire::Envelope>,
    others_bytes: usize,
    /// Since when an answer is waited for.
    asked: Option<Instant>,
}

impl SendQueue {
    pub(super) fn new(session: Session) -> Self {
        Self {
            session,
            waiting: Mutex::default(),
            ready: Notify::new(),
        }
    }

    pub(super) fn session(&self) -> Session {
        self.session
    }

    pub(super) fn send(&self, message: &Message) -> Result<(), SendError> {
        let is_ping = match message {
            Message::Ping(ping) if ping.session != self.session => return Err(SendError::NoLink),
            other => matches!(other, Message::Ping(_)),
        };
        let envelope = to_wire(self.session.0, message);
        let bytes = envelope.encoded_len();
        if bytes > MESSAGE_BYTES_MAX || !has_bounds(message) {
            return Err(SendError::TooLong);
        }
        let mut waiting = self.waiting();
        if is_ping {
            waiting.ping = Some(envelope);
            waiting.asked.get_or_insert_with(Instant::now);
        } else {
            if waiting.others.len() >= MESSAGES_MAX || waiting.others_bytes + bytes > BYTES_MAX {
                return Err(SendError::Full);
            }
            waiting.others_bytes += bytes;
            waiting.others.push_back(envelope);
        }
        drop(waiting);
        self.ready.notify_one();
        Ok(())
    }

    /// The next message; only one caller may wait for it.
    pub(super) async fn next(&self) -> wire::Envelope {
        loop {
            // A note that nobody waits for is kept, so none is missed in between.
            if let Some(message) = self.take() {
                return message;
            }
            self.ready.notified().await;
        }
    }

    /// Since when an answer is waited for, if one is.
    pub(super) fn asked(&self) -> Option<Instant> {
        self.waiting().asked
    }

    /// The other side has said something.
    pub(super) fn heard(&self) {
        self.waiting().asked = None;
    }

    fn take(&self) -> Option<wire::Envelope> {
        let mut waiting = self.waiting();
        if let Some(ping) = waiting.ping.take() {
            return Some(ping);
        }
        let message = waiting.others.pop_front()?;
        waiting.others_bytes = waiting.others_bytes.saturating_sub(message.encoded_len());
        Some(message)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use isotherm_regions::{Advertisement, Ping, RecordVersion};

    use super::*;
    use crate::peering::{NamedPlacement, NamedTarget};

    const SESSION: Session = Session(7);

    fn ping(seq: u64) -> Message {
        Message::Ping(Ping {
            session: SESSION,
            seq,
            record_version: RecordVersion::default(),
            advertisement: Advertisement::default(),
        })
    }

    fn placements(model_bytes: usize) -> Message {
        Message::Placements(vec![NamedPlacement {
            model: "m".repeat(model_bytes).into(),
            at: NamedTarget::Region("eu".into()),
            parent: None,
            blocks: Box::default(),
        }])
    }

    fn seq(message: Option<wire::Envelope>) -> Option<u64> {
        match message?.payload? {
            wire::Payload::Ping(ping) => Some(ping.seq),
            _ => None,
        }
    }

    #[test]
    fn the_newest_ping_wins_and_goes_first() {
        let outbox = SendQueue::new(SESSION);
        outbox.send(&placements(1)).unwrap();
        for seq in 1..=1000 {
            outbox.send(&ping(seq)).unwrap();
        }
        assert_eq!(seq(outbox.take()), Some(1000));
        assert!(outbox.take().is_some());
        assert!(outbox.take().is_none());
    }

    #[test]
    fn a_ping_of_another_link_is_not_said() {
        let outbox = SendQueue::new(Session(8));
        assert_eq!(outbox.send(&ping(1)), Err(SendError::NoLink));
    }

    #[test]
    fn ten_thousand_batches_do_not_fit() {
        let outbox = SendQueue::new(SESSION);
        let said = (0..10_000).filter(|_| outbox.send(&placements(10)).is_ok());
        assert_eq!(said.count(), MESSAGES_MAX);
        assert_eq!(outbox.send(&placements(10)), Err(SendError::Full));
        outbox.send(&ping(1)).unwrap();
        while outbox.take().is_some() {}
        assert_eq!(outbox.waiting().others_bytes, 0);
    }

    #[test]
    fn long_batches_do_not_fit_either() {
        let outbox = SendQueue::new(SESSION);
        assert_eq!(
            outbox.send(&placements(MESSAGE_BYTES_MAX)),
            Err(SendError::TooLong)
        );
        let said = (0..10).filter(|_| outbox.send(&placements(MESSAGE_BYTES_MAX / 2)).is_ok());
        assert_eq!(said.count(), 3);
    }

    #[test]
    fn silence_is_counted_from_the_first_ping_without_an_answer() {
        let outbox = SendQueue::new(SESSION);
        assert_eq!(outbox.asked(), None);
        outbox.send(&ping(1)).unwrap();
        let asked = outbox.asked().unwrap();
        outbox.send(&ping(2)).unwrap();
        assert_eq!(outbox.asked(), Some(asked));
        outbox.heard();
        assert_eq!(outbox.asked(), None);
    }
}
