//! The messages that wait to be sent on a link.
//!
//! A peer that reads slowly must not make this service grow, nor receive stale pings: the queue keeps the newest ping and a
//! bounded number of other messages. A message that does not fit is an error for its sender.

use std::collections::VecDeque;
use std::time::Instant;

use isotherm_regions::Session;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::Notify;

use super::convert::encode_within_bounds;
use super::wire::Envelope;
use super::{MESSAGE_BYTES_MAX, Message};

/// The most messages in a queue, pings excluded.
const MESSAGES_MAX: usize = 64;
/// The most bytes of these messages together.
const BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The link is down, or a ping names another link.
    #[error("there is no such link")]
    NoLink,
    /// The peer reads more slowly than this service sends.
    #[error("the send queue is full")]
    Full,
    /// The message is longer than [`MESSAGE_BYTES_MAX`], or beyond another bound that the peer checks.
    #[error("the message is too long")]
    TooLong,
}

#[derive(Debug)]
pub(super) struct SendQueue {
    session: Session,
    state: Mutex<QueueState>,
    ready: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    ping: Option<Envelope>,
    others: VecDeque<Envelope>,
    others_bytes: usize,
    /// Time of the first ping without a reply.
    pinged_at: Option<Instant>,
}

impl SendQueue {
    pub(super) fn new(session: Session) -> Self {
        Self {
            session,
            state: Mutex::default(),
            ready: Notify::new(),
        }
    }

    pub(super) fn session(&self) -> Session {
        self.session
    }

    pub(super) fn push(&self, message: &Message) -> Result<(), SendError> {
        let is_ping = match message {
            Message::Ping(ping) if ping.session != self.session => return Err(SendError::NoLink),
            other => matches!(other, Message::Ping(_)),
        };
        let envelope = encode_within_bounds(self.session, message).ok_or(SendError::TooLong)?;
        let bytes = envelope.encoded_len();
        let mut state = self.state.lock();
        if is_ping {
            state.ping = Some(envelope);
            state.pinged_at.get_or_insert_with(Instant::now);
        } else {
            if state.others.len() >= MESSAGES_MAX || state.others_bytes + bytes > BYTES_MAX {
                return Err(SendError::Full);
            }
            state.others_bytes += bytes;
            state.others.push_back(envelope);
        }
        drop(state);
        self.ready.notify_one();
        Ok(())
    }

    /// Waits for the next message. At most one task may wait.
    pub(super) async fn next(&self) -> Envelope {
        loop {
            // `Notify` stores one notification, so none is lost between the two calls.
            if let Some(envelope) = self.pop() {
                return envelope;
            }
            self.ready.notified().await;
        }
    }

    /// Time of the first ping without a reply, if there is one.
    pub(super) fn pinged_at(&self) -> Option<Instant> {
        self.state.lock().pinged_at
    }

    /// Notes that the peer has sent a message.
    pub(super) fn on_message(&self) {
        self.state.lock().pinged_at = None;
    }

    fn pop(&self) -> Option<Envelope> {
        let mut state = self.state.lock();
        if let Some(ping) = state.ping.take() {
            return Some(ping);
        }
        let envelope = state.others.pop_front()?;
        state.others_bytes = state.others_bytes.saturating_sub(envelope.encoded_len());
        Some(envelope)
    }
}

#[cfg(test)]
mod tests {
    use isotherm_regions::Ping;

    use super::*;
    use crate::peering::wire::Payload;
    use crate::pool::{SharedPlacement, SharedTarget};

    const SESSION: Session = Session(7);

    fn ping(seq: u64) -> Message {
        Message::Ping(Ping {
            session: SESSION,
            seq,
        })
    }

    fn placements(model_bytes: usize) -> Message {
        let placement = SharedPlacement {
            target: SharedTarget::Peer("eu".into()),
            parent: None,
            blocks: Box::default(),
            uncached_tokens: None,
            charge: None,
        };
        Message::Placements(vec![("m".repeat(model_bytes).into(), placement)])
    }

    fn seq(envelope: Option<Envelope>) -> Option<u64> {
        match envelope?.payload? {
            Payload::Ping(ping) => Some(ping.seq),
            _ => None,
        }
    }

    #[test]
    fn the_newest_ping_replaces_older_ones_and_is_sent_first() {
        let queue = SendQueue::new(SESSION);
        queue.push(&placements(1)).unwrap();
        for seq in 1..=1000 {
            queue.push(&ping(seq)).unwrap();
        }
        assert_eq!(seq(queue.pop()), Some(1000));
        assert!(queue.pop().is_some());
        assert!(queue.pop().is_none());
    }

    #[test]
    fn a_ping_of_another_link_is_not_sent() {
        let queue = SendQueue::new(Session(8));
        assert_eq!(queue.push(&ping(1)), Err(SendError::NoLink));
    }

    #[test]
    fn the_number_of_messages_is_bounded() {
        let queue = SendQueue::new(SESSION);
        let sent = (0..10_000).filter(|_| queue.push(&placements(10)).is_ok());
        assert_eq!(sent.count(), MESSAGES_MAX);
        assert_eq!(queue.push(&placements(10)), Err(SendError::Full));
        queue.push(&ping(1)).unwrap();
        while queue.pop().is_some() {}
        assert_eq!(queue.state.lock().others_bytes, 0);
    }

    #[test]
    fn the_length_of_messages_is_bounded() {
        let queue = SendQueue::new(SESSION);
        assert_eq!(
            queue.push(&placements(MESSAGE_BYTES_MAX)),
            Err(SendError::TooLong)
        );
        let sent = (0..10).filter(|_| queue.push(&placements(MESSAGE_BYTES_MAX / 2)).is_ok());
        assert_eq!(sent.count(), 3);
    }

    #[test]
    fn silence_is_measured_from_the_first_ping_without_a_reply() {
        let queue = SendQueue::new(SESSION);
        assert_eq!(queue.pinged_at(), None);
        queue.push(&ping(1)).unwrap();
        let pinged_at = queue.pinged_at().unwrap();
        queue.push(&ping(2)).unwrap();
        assert_eq!(queue.pinged_at(), Some(pinged_at));
        queue.on_message();
        assert_eq!(queue.pinged_at(), None);
    }
}
