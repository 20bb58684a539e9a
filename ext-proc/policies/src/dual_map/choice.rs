//! The choice between the two candidates (`DualMap` 3.2, "select which instance between the two candidates").
//!
//! Load is the queued prefill of a replica in seconds, so the paper's threshold is the SLO itself. Load has two parts: prompts
//! in the replica, and queued requests that wait for it. The delay of a stalled replica counts in rebalancing alone (A.7.2).

use core::time::Duration;
use isotherm_router::{Dispatch, PrefixMatch, Reason, ReplicaIndex, Request, Time, View};

use super::pair::Pair;
use super::stall_detector::StallDetector;
use super::{DualMap, reason_of};

/// Time without a started prompt after which a replica with pending requests counts as stalled (A.7.3: T).
const STALLED_MIN: Duration = Duration::from_secs(3);

impl DualMap {
    /// Chooses the better of the two candidates.
    pub(super) fn choose(&self, request: &Request, pair: Pair, view: &View<'_>) -> Dispatch {
        let first = self.candidate(request, pair.first, view);
        let Some(second) = pair.second else {
            return chosen(&first, reason_of(&first.matched));
        };
        let second = self.candidate(request, second, view);
        let (warm, cold) = if first.matched.depth < second.matched.depth {
            (second, first)
        } else {
            (first, second)
        };
        let follows_cache =
            warm.matched.depth > cold.matched.depth && warm.pending_s <= view.ttft_slo_s();
        if follows_cache {
            return chosen(&warm, Reason::Prefix);
        }
        let by_load = warm
            .pending_s
            .total_cmp(&cold.pending_s)
            .then_with(|| view.rank(warm.replica).cmp(&view.rank(cold.replica)));
        let better = if by_load.is_le() { warm } else { cold };
        chosen(&better, Reason::LeastLoaded)
    }

    /// Time until a replica has computed its prompts and those of its queue, in seconds, if it does not stall.
    pub(super) fn pending_s(&self, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        view.backlog_s(replica) + view.prefill_s(replica, self.queues.tokens(replica))
    }

    /// Time until a replica has computed its prompts and so many tokens besides, in seconds, with the delay of a stalled
    /// replica.
    pub(super) fn wait_s(&self, replica: ReplicaIndex, tokens: f64, view: &View<'_>) -> f64 {
        let stalled = self.stalled_for(replica, view.now());
        let delay_s = if stalled >= STALLED_MIN {
            stalled.as_secs_f64()
        } else {
            0.0
        };
        delay_s + view.backlog_s(replica) + view.prefill_s(replica, tokens)
    }

    /// Time for which requests have waited inside a replica that began none; zero if none waits.
    fn stalled_for(&self, replica: ReplicaIndex, now: Time) -> Duration {
        let stall = self.stalls.get(&replica);
        let since = stall.and_then(StallDetector::stalled_since);
        since.map(|since| now.since(since)).unwrap_or_default()
    }

    /// Whether the queued prefill of a replica exceeds the SLO, with the delay of a stalled one.
    pub(super) fn is_overloaded(&self, replica: ReplicaIndex, view: &View<'_>) -> bool {
        self.wait_s(replica, self.queues.tokens(replica), view) > view.ttft_slo_s()
    }

    fn candidate(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> Candidate {
        Candidate {
            replica,
            matched: view.match_on(request, replica),
            pending_s: self.pending_s(replica, view),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    replica: ReplicaIndex,
    matched: PrefixMatch,
    pending_s: f64,
}

const fn chosen(candidate: &Candidate, reason: Reason) -> Dispatch {
    Dispatch {
        replica: candidate.replica,
        reason,
        matched: Some(candidate.matched),
    }
}
