//! Which of the two candidates (`DualMap` 3.2, "select which instance between the two candidates").
//!
//! The load that counts is what a replica still has to compute of prompts, in seconds: the paper's pending prefill tokens,
//! divided by the replica's own speed, so that its threshold ("the maximum number of pending prefill tokens that a GPU
//! can process within the SLO") is the SLO itself, whatever the replica. It has three parts: what was sent and is not
//! computed yet, those who wait for it here, and the delay of a replica that computes nothing at present.

use core::time::Duration;

use super::pair::Pair;
use super::{CandidateRule, Chosen, DualMap, reason_of};
use crate::index::PrefixMatch;
use crate::policy::{View, load_key, uncached_tokens};
use crate::replica_index::ReplicaIndex;
use crate::{Reason, Request};

/// A replica where requests wait and none has begun for so long is in the decode bottleneck (A.7.3: T).
const STALLED_MIN: Duration = Duration::from_secs(3);

impl DualMap {
    /// The better of the two candidates.
    pub(super) fn choose(&self, request: &Request, pair: Pair, view: &View<'_>) -> Chosen {
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
        let follows_cache = warm.matched.depth > cold.matched.depth
            && match self.ablation.selection {
                CandidateRule::CacheAffinity => true,
                CandidateRule::LeastLoaded => false,
                CandidateRule::MinTtft => warm.ttft_s <= cold.ttft_s,
                CandidateRule::SloAware => warm.pending_s <= view.ttft_slo_s,
            };
        if follows_cache {
            return chosen(&warm, Reason::Prefix);
        }
        let by_time = |candidate: &Candidate| match self.ablation.selection {
            CandidateRule::MinTtft => candidate.ttft_s,
            CandidateRule::CacheAffinity | CandidateRule::LeastLoaded | CandidateRule::SloAware => {
                candidate.pending_s
            }
        };
        let by_load = by_time(&warm)
            .total_cmp(&by_time(&cold))
            .then_with(|| load_key(view, warm.slot).cmp(&load_key(view, cold.slot)));
        let better = if by_load.is_le() { warm } else { cold };
        chosen(&better, Reason::LeastLoaded)
    }

    /// How long until a replica has computed what it has and those in its line, in seconds.
    pub(super) fn pending_s(&self, slot: ReplicaIndex, view: &View<'_>) -> f64 {
        self.wait_s(slot, self.lines.tokens(slot), view)
    }

    /// How long until a replica has computed what it has, and so many tokens besides, in seconds.
    pub(super) fn wait_s(&self, slot: ReplicaIndex, tokens: f64, view: &View<'_>) -> f64 {
        let stalled = view.replicas.stalled_for(slot, view.now);
        let delay_s = if stalled >= STALLED_MIN {
            stalled.as_secs_f64()
        } else {
            0.0
        };
        delay_s + view.replicas.backlog_s(slot, view.now) + view.replicas.prefill_s(slot, tokens)
    }

    /// Whether a replica has more to compute than the time to the first token allows.
    pub(super) fn is_overloaded(&self, slot: ReplicaIndex, view: &View<'_>) -> bool {
        self.pending_s(slot, view) > view.ttft_slo_s
    }

    fn candidate(&self, request: &Request, slot: ReplicaIndex, view: &View<'_>) -> Candidate {
        let matched = view.index.deepest_of(request.fingerprint.blocks(), slot);
        let pending_s = self.pending_s(slot, view);
        let computes_s = view
            .replicas
            .prefill_s(slot, uncached_tokens(request, matched.depth));
        Candidate {
            slot,
            matched,
            pending_s,
            ttft_s: pending_s + computes_s,
        }
    }
}

/// One of the two.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    slot: ReplicaIndex,
    matched: PrefixMatch,
    pending_s: f64,
    ttft_s: f64,
}

const fn chosen(candidate: &Candidate, reason: Reason) -> Chosen {
    Chosen {
        slot: candidate.slot,
        reason,
        matched: candidate.matched,
    }
}
