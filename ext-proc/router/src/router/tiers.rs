//! Figures of the workload tiers.

use super::Router;
use super::feedback::ResponseUsage;
use crate::pool_state::InFlightRequest;
use crate::queue::{Band, QueuedRequest};
use crate::{Tier, TierStatus, Time};

/// Counts of one tier.
#[derive(Clone, Copy, Debug, Default)]
struct TierCount {
    arrived: u64,
    dispatched: u64,
    rejected: u64,
    within_slo: u64,
    past_slo: u64,
}

/// Counts of every tier.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TierCounts {
    fast: TierCount,
    normal: TierCount,
    batch: TierCount,
}

impl TierCounts {
    const fn of(&mut self, tier: Tier) -> &mut TierCount {
        match tier {
            Tier::InteractiveFast => &mut self.fast,
            Tier::InteractiveNormal => &mut self.normal,
            Tier::NonInteractive => &mut self.batch,
        }
    }

    pub(super) const fn arrived(&mut self, tier: Tier) {
        self.of(tier).arrived += 1;
    }

    pub(super) const fn on_dispatch(&mut self, tier: Tier) {
        self.of(tier).dispatched += 1;
    }

    pub(super) const fn rejected(&mut self, tier: Tier) {
        self.of(tier).rejected += 1;
    }

    /// Counts a first token, which came in time or late.
    pub(super) const fn first_token(&mut self, tier: Tier, is_in_time: bool) {
        let count = self.of(tier);
        if is_in_time {
            count.within_slo += 1;
        } else {
            count.past_slo += 1;
        }
    }
}

impl Router {
    /// The tier under which a request counts.
    pub(super) const fn tier_of(&self, tier: Tier) -> Tier {
        if self.pool.config.tiers.is_some() {
            tier
        } else {
            Tier::InteractiveNormal
        }
    }

    /// The time by which the first token of a request is due: by its budget, or by the deadline of batch work.
    pub(super) fn due(&self, queued: &QueuedRequest) -> Time {
        match queued.band {
            Band::Waiting => queued.entered.after(self.pool.ttft_slo_of(&queued.request)),
            Band::Held => queued.deadline(),
        }
    }

    /// Counts the first token of an answer that told its time only at the end.
    pub(super) fn count_late_told(&mut self, request: &InFlightRequest, usage: &ResponseUsage) {
        if let Some(ttft) = usage.ttft.filter(|_| !request.has_begun) {
            let is_in_time = request.dispatched_at.after(ttft) <= request.due;
            self.tier_counts.first_token(request.tier, is_in_time);
        }
    }

    /// Figures of every workload tier, the fast one first.
    #[must_use]
    pub fn tiers(&self, now: Time) -> [TierStatus; 3] {
        let queue = &self.pool.queue;
        let has_tiers = self.pool.config.tiers.is_some();
        let counts = &self.tier_counts;
        let of = |tier, count: &TierCount| {
            let (waiting, oldest) = match tier {
                _ if has_tiers => queue.of_tier(tier),
                Tier::InteractiveNormal => (queue.len(), queue.oldest().map(|(_, q)| q)),
                Tier::InteractiveFast | Tier::NonInteractive => (0, None),
            };
            TierStatus {
                tier,
                waiting,
                oldest_wait: oldest.map_or_else(Default::default, |q| now.since(q.entered)),
                arrived: count.arrived,
                dispatched: count.dispatched,
                rejected: count.rejected,
                within_slo: count.within_slo,
                past_slo: count.past_slo,
            }
        };
        [
            of(Tier::InteractiveFast, &counts.fast),
            of(Tier::InteractiveNormal, &counts.normal),
            of(Tier::NonInteractive, &counts.batch),
        ]
    }
}
