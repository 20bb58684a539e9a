//! Queued requests by the tier whose rules apply to their wait. Each tier has a longest wait of its own, so the oldest request of
//! each tier expires first.

use core::time::Duration;
use std::collections::BTreeSet;

use super::{Queue, QueueSeq, QueuedRequest};
use crate::{Tier, TierRules, Time};

const TIERS: [Tier; 3] = [
    Tier::InteractiveFast,
    Tier::InteractiveNormal,
    Tier::NonInteractive,
];

/// Requests of a pool with tiers, in order of arrival; empty in a pool without tiers.
#[derive(Debug, Default)]
pub(super) struct TierEntries {
    by_tier: [BTreeSet<QueueSeq>; 3],
    /// Promoted batch requests, which wait as interactive ones.
    promoted: usize,
}

impl TierEntries {
    pub(super) fn insert(&mut self, queued: &QueuedRequest) {
        self.of_mut(queued.waits_as()).insert(queued.seq);
        self.promoted += usize::from(is_promoted(queued));
    }

    pub(super) fn remove(&mut self, queued: &QueuedRequest) {
        if self.of_mut(queued.waits_as()).remove(&queued.seq) {
            self.promoted -= usize::from(is_promoted(queued));
        }
    }

    const fn of(&self, tier: Tier) -> &BTreeSet<QueueSeq> {
        let [fast, normal, held] = &self.by_tier;
        match tier {
            Tier::InteractiveFast => fast,
            Tier::InteractiveNormal => normal,
            Tier::NonInteractive => held,
        }
    }

    const fn of_mut(&mut self, tier: Tier) -> &mut BTreeSet<QueueSeq> {
        let [fast, normal, held] = &mut self.by_tier;
        match tier {
            Tier::InteractiveFast => fast,
            Tier::InteractiveNormal => normal,
            Tier::NonInteractive => held,
        }
    }
}

const fn is_promoted(queued: &QueuedRequest) -> bool {
    matches!(queued.request.tier, Tier::NonInteractive)
        && matches!(queued.waits_as(), Tier::InteractiveNormal)
}

impl Queue {
    /// The request that expires first, and the time of its expiry.
    pub(crate) fn next_expiry(
        &self,
        wait_max: Duration,
        tiers: Option<&TierRules>,
    ) -> Option<(Time, QueueSeq)> {
        let Some(tiers) = tiers else {
            let (seq, oldest) = self.oldest()?;
            return Some((oldest.entered.after(wait_max), seq));
        };
        let first = |tier| {
            let seq = *self.entries.of(tier).first()?;
            let entered = self.get(seq)?.entered;
            Some((entered.after(tiers.wait_max(tier)), seq))
        };
        TIERS.into_iter().filter_map(first).min()
    }

    /// Number of held requests, and the oldest of them.
    pub(crate) fn held(&self) -> (usize, Option<&QueuedRequest>) {
        let held = self.entries.of(Tier::NonInteractive);
        let oldest = held.first().and_then(|seq| self.get(*seq));
        (held.len(), oldest)
    }

    /// Number of requests of a tier, as requests name it, and the oldest of them.
    pub(crate) fn of_tier(&self, tier: Tier) -> (usize, Option<&QueuedRequest>) {
        let (entries, promoted) = (&self.entries, self.entries.promoted);
        let waiting = entries.of(tier).len();
        let count = match tier {
            Tier::InteractiveFast => waiting,
            Tier::InteractiveNormal => waiting - promoted,
            Tier::NonInteractive => waiting + promoted,
        };
        let oldest = entries.of(tier).first().and_then(|seq| self.get(*seq));
        (count, oldest)
    }
}
