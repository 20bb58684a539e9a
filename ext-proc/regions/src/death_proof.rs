//! The proof that a peer's service does not run, although the network to it works (`docs/design/recovery.md`).
//!
//! The proof says that the service did not run *at some moment since it was last heard*. It holds until the service is heard
//! again, also when the network breaks later.

use core::time::Duration;

use isotherm_router::Time;

/// Dials that must fail.
const FAILED_DIALS_MIN: u32 = 2;

#[derive(Debug)]
pub(super) struct DeathProof {
    last_contact: Time,
    /// Answered probes without a gap.
    run: Option<ProbeRun>,
    /// Whether the proof was complete while no other region heard the peer.
    pub(super) is_proved: bool,
}

#[derive(Debug)]
struct ProbeRun {
    since: Time,
    last_sent: Time,
    failed_dials: u32,
    /// Time at which enough dials had failed.
    enough_dials_at: Option<Time>,
}

impl DeathProof {
    pub(super) fn new(now: Time) -> Self {
        Self {
            last_contact: now,
            run: None,
            is_proved: false,
        }
    }

    /// Starts over after a sign of life, or after this service did not listen.
    pub(super) fn reset(&mut self, now: Time) {
        *self = Self::new(now);
    }

    pub(super) fn on_dial_failed(&mut self, dial_started: Time, now: Time) {
        if let Some(run) = &mut self.run
            && dial_started >= run.since
        {
            run.failed_dials = run.failed_dials.saturating_add(1);
            if run.failed_dials == FAILED_DIALS_MIN {
                run.enough_dials_at = Some(now);
            }
        }
    }

    /// Handles a round of probes; `gap_max` is the longest pause between two rounds of one run.
    pub(super) fn on_probe(
        &mut self,
        sent: Time,
        any_answered: bool,
        now: Time,
        gap_max: Duration,
    ) {
        if sent < self.last_contact {
            return;
        }
        if !any_answered {
            self.run = None;
            return;
        }
        match &mut self.run {
            Some(run) if sent.since(run.last_sent) <= gap_max => {
                run.last_sent = run.last_sent.max(sent);
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

    /// Whether the run is long enough, and enough dials failed within it.
    pub(super) fn is_complete(&self, now: Time, proof_min: Duration) -> bool {
        self.run.as_ref().is_some_and(|run| {
            run.enough_dials_at
                .is_some_and(|enough| run.last_sent >= enough)
                && now.since(run.since) >= proof_min
        })
    }

    /// Whether a run needs more failed dials.
    pub(super) fn needs_dials(&self) -> bool {
        self.run
            .as_ref()
            .is_some_and(|run| run.enough_dials_at.is_none())
    }
}
