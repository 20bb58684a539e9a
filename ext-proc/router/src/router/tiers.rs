//! Figures of the workload tiers.

use super::Router;
use super::feedback::ResponseUsage;
use crate::pool_state::InFlightRequest;
use crate::queue::{Band, QueuedRequest};
use crate::{Tier, TierStatus, Time};

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
        let tiers = [
            Tier::InteractiveFast,
            Tier::InteractiveNormal,
            Tier::NonInteractive,
        ];
        let mut counts = self.tier_counts;
        tiers.map(|tier| {
            let (waiting, oldest) = queue.count(|q| self.tier_of(q.request.tier) == tier);
            TierStatus {
                tier,
                waiting,
                oldest_wait: oldest.map_or_else(Default::default, |q| now.since(q.entered)),
                ..*counts.of(tier)
            }
        })
    }
}
