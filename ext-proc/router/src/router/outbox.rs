//! Results of a router for its driver: effects, placements for siblings, and figures.

use core::time::Duration;
use std::collections::VecDeque;

use crate::{
    Counters, Decision, Effect, End, Placement, RejectReason, RequestId, Tier, TierStatus,
};

/// Limit of placements that the driver has not taken yet.
const PLACEMENTS_MAX: usize = 4_096;

/// Results that the driver has not taken yet, and the figures of all.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Effects, oldest first.
    pub(super) effects: VecDeque<Effect>,
    /// Placements, oldest first.
    pub(super) placements: VecDeque<Placement>,
    pub(super) counters: Counters,
    pub(super) tiers: TierCounts,
}

impl Outbox {
    /// Sends a request to a replica.
    pub(super) fn dispatch(&mut self, id: RequestId, tier: Tier, decision: Decision) {
        self.tiers.of(tier).dispatched += 1;
        *self.counters.decisions.entry(decision.reason).or_default() += 1;
        self.effects.push_back(Effect::Dispatch(id, decision));
    }

    /// Rejects a request, and names the time after which its client may try again.
    pub(super) fn reject(
        &mut self,
        id: RequestId,
        tier: Tier,
        reason: RejectReason,
        retry_after: Duration,
    ) {
        self.tiers.of(tier).rejected += 1;
        *self.counters.rejects.entry(reason).or_default() += 1;
        self.effects.push_back(Effect::Reject {
            id,
            reason,
            retry_after,
        });
    }

    /// Queues a placement for the siblings. A lost one costs at most a cache hit.
    pub(super) fn share(&mut self, placement: Placement) {
        if self.placements.len() >= PLACEMENTS_MAX {
            self.placements.pop_front();
            self.counters.placements_dropped += 1;
        }
        self.placements.push_back(placement);
    }

    /// Counts how a response ended.
    pub(super) const fn count_end(&mut self, end: End) {
        let counters = &mut self.counters;
        let of_kind = match end {
            End::Answered => return counters.finished_ok += 1,
            End::Errored | End::Failed => &mut 0,
            End::Refused => &mut counters.refused,
            End::Broke => &mut counters.broke,
            End::TimedOut => &mut counters.timed_out,
            End::Unsent => &mut counters.unsent,
        };
        *of_kind += 1;
        counters.finished_failed += 1;
    }
}

/// Counts of every tier: the fast one, the normal one, and batch work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TierCounts([TierStatus; 3]);

impl TierCounts {
    pub(super) const fn of(&mut self, tier: Tier) -> &mut TierStatus {
        let [fast, normal, batch] = &mut self.0;
        match tier {
            Tier::InteractiveFast => fast,
            Tier::InteractiveNormal => normal,
            Tier::NonInteractive => batch,
        }
    }

    /// Counts a first token, which came in time or late.
    pub(super) const fn first_token(&mut self, tier: Tier, is_in_time: bool) {
        let count = self.of(tier);
        count.within_slo += is_in_time as u64;
        count.past_slo += !is_in_time as u64;
    }
}
