//! The proof that a peer's service does not run, although the network to it works.
//!
//! Silence alone proves nothing: the network may be cut. So replicas of the silent region are asked directly, and its
//! service is dialled, again and again, side by side. When, without a break, every question to the replicas was answered
//! while every attempt to dial failed, before, between and after them, then the way there was open and nobody was at home.
//! One question without an answer, one sign of life, and the proof starts over: right after a partition heals the
//! replicas may answer earlier than the service is dialled.
//!
//! What is proved is that the service did not run *at some moment since it was last heard*. That stays true when the
//! network breaks later, until it is heard again; what follows from it is in `adopt`.

use core::time::Duration;

use crate::Time;

/// Attempts to dial that must fail.
const ATTEMPTS_MIN: u32 = 2;

/// The case against one peer.
#[derive(Debug)]
pub(super) struct Proof {
    /// When the peer was last heard.
    contact: Time,
    /// The unbroken row of answers from its replicas.
    row: Option<Row>,
    proved: bool,
}

#[derive(Debug)]
struct Row {
    since: Time,
    last_sent: Time,
    attempts: u32,
    /// When enough attempts had failed.
    enough: Option<Time>,
}

impl Proof {
    /// Nothing is known at this time.
    pub(super) fn new(now: Time) -> Self {
        Self {
            contact: now,
            row: None,
            proved: false,
        }
    }

    /// The peer gave a sign of life, or this service itself cannot be trusted to have listened.
    pub(super) fn contact(&mut self, now: Time) {
        *self = Self::new(now);
    }

    /// An attempt to dial failed.
    pub(super) fn failed(&mut self, began: Time, now: Time) {
        if let Some(row) = &mut self.row
            && began >= row.since
        {
            row.attempts = row.attempts.saturating_add(1);
            if row.attempts == ATTEMPTS_MIN {
                row.enough = Some(now);
            }
        }
    }

    /// Replicas were asked. `gap_max`: the longest pause between two questions of one row.
    pub(super) fn witness(&mut self, sent: Time, alive: bool, now: Time, gap_max: Duration) {
        if sent < self.contact {
            return;
        }
        if !alive {
            self.row = None;
            return;
        }
        match &mut self.row {
            Some(row) if sent.since(row.last_sent) <= gap_max => {
                row.last_sent = row.last_sent.max(sent);
            }
            _ => {
                self.row = Some(Row {
                    since: now,
                    last_sent: sent,
                    attempts: 0,
                    enough: None,
                });
            }
        }
    }

    /// Whether the row of answers is long enough now, and attempts enough failed within it.
    pub(super) fn complete(&self, now: Time, row_min: Duration) -> bool {
        self.row.as_ref().is_some_and(|row| {
            row.enough.is_some_and(|enough| row.last_sent >= enough)
                && now.since(row.since) >= row_min
        })
    }

    /// Nobody else hears the peer either: it is proved.
    pub(super) fn conclude(&mut self) {
        self.proved = true;
    }

    /// Whether it is proved.
    pub(super) fn proved(&self) -> bool {
        self.proved
    }

    /// Whether a row of answers goes on in which more attempts must fail.
    pub(super) fn wants_attempts(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.enough.is_none())
    }
}
