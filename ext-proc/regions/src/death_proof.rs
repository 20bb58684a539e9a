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

use isotherm_router::Time;

/// Attempts to dial that must fail.
const ATTEMPTS_MIN: u32 = 2;

/// The case against one peer.
#[derive(Debug)]
pub(super) struct DeathProof {
    /// When the peer was last heard.
    last_contact: Time,
    /// The unbroken row of answers from its replicas.
    run: Option<ProbeRun>,
    is_proved: bool,
}

#[derive(Debug)]
struct ProbeRun {
    since: Time,
    last_sent: Time,
    failed_dials: u32,
    /// When enough attempts had failed.
    enough_dials_at: Option<Time>,
}

impl DeathProof {
    /// Nothing is known at this time.
    pub(super) fn new(now: Time) -> Self {
        Self {
            last_contact: now,
            run: None,
            is_proved: false,
        }
    }

    /// The peer gave a sign of life, or this service itself cannot be trusted to have listened.
    pub(super) fn reset(&mut self, now: Time) {
        *self = Self::new(now);
    }

    /// An attempt to dial failed.
    pub(super) fn on_dial_failed(&mut self, began: Time, now: Time) {
        if let Some(row) = &mut self.run
            && began >= row.since
        {
            row.failed_dials = row.failed_dials.saturating_add(1);
            if row.failed_dials == ATTEMPTS_MIN {
                row.enough_dials_at = Some(now);
            }
        }
    }

    /// Replicas were asked. `gap_max`: the longest pause between two questions of one row.
    pub(super) fn on_probe(&mut self, sent: Time, alive: bool, now: Time, gap_max: Duration) {
        if sent < self.last_contact {
            return;
        }
        if !alive {
            self.run = None;
            return;
        }
        match &mut self.run {
            Some(row) if sent.since(row.last_sent) <= gap_max => {
                row.last_sent = row.last_sent.max(sent);
            }
            _ => {
                self.run = Some(ProbeRun {
                    since: now,
                    last_sent: sent,
                    failed_dials: 0,
                    enough_dials_at: None,
                });
            }
        }
    }

    /// Whether the row of answers is long enough now, and attempts enough failed within it.
    pub(super) fn is_complete(&self, now: Time, row_min: Duration) -> bool {
        self.run.as_ref().is_some_and(|row| {
            row.enough_dials_at
                .is_some_and(|enough| row.last_sent >= enough)
                && now.since(row.since) >= row_min
        })
    }

    /// Nobody else hears the peer either: it is proved.
    pub(super) fn confirm(&mut self) {
        self.is_proved = true;
    }

    /// Whether it is proved.
    pub(super) fn is_proved(&self) -> bool {
        self.is_proved
    }

    /// Whether a row of answers goes on in which more attempts must fail.
    pub(super) fn needs_dials(&self) -> bool {
        self.run
            .as_ref()
            .is_some_and(|row| row.enough_dials_at.is_none())
    }
}
