//! Queued requests by the tier whose rules apply to their wait. Each tier has a longest wait of its own, so the oldest request of
//! each tier expires first.

use core::time::Duration;
use std::collections::BTreeSet;

use super::{Queue, QueueSeq, QueuedRequest};
use crate::{Tier, TierRules, Time};

/// Requests of a pool with tiers, in order of arrival; empty in a pool without tiers.
#[derive(Debug, Default)]
pub(super) struct TierEntries([BTreeSet<QueueSeq>; 3]);

impl TierEntries {
    pub(super) fn insert(&mut self, queued: &QueuedRequest) {
        self.of(queued.waits_as()).insert(queued.seq);
    }

    pub(super) fn remove(&mut self, queued: &QueuedRequest) {
        self.of(queued.waits_as()).remove(&queued.seq);
    }

    const fn of(&mut self, tier: Tier) -> &mut BTreeSet<QueueSeq> {
        let [fast, normal, held] = &mut self.0;
        match tier {
            Tier::InteractiveFast => fast,
            Tier::InteractiveNormal => normal,
            Tier::NonInteractive => held,
        }
    }
}

impl Queue {
    /// The request that expires first, and the time of its expiry.
    pub(crate) fn next_expiry(
        &self,
        wait_max: Duration,
        tiers: Option<&TierRules>,
    ) -> Option<(Time, QueueSeq)> {
        let Some(tiers) = tiers else {
            let oldest = self.oldest()?;
            return Some((oldest.entered.after(wait_max), oldest.seq));
        };
        let oldest = self.entries.0.iter().filter_map(|waiting| waiting.first());
        let oldest = oldest.filter_map(|seq| self.get(*seq));
        let expiries = oldest.map(|queued| {
            let wait_max = tiers.wait_max(queued.waits_as());
            (queued.entered.after(wait_max), queued.seq)
        });
        expiries.min()
    }

    /// Number of the requests that meet a condition, and the oldest of them; for reports, since it reads the whole queue.
    pub(crate) fn count(
        &self,
        is_counted: impl Fn(&QueuedRequest) -> bool,
    ) -> (usize, Option<&QueuedRequest>) {
        let counted = || self.all().filter(|queued| is_counted(queued));
        (counted().count(), counted().next())
    }
}
