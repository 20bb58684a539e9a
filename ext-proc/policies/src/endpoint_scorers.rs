//! Weighted scorers of endpoints, as llm-d and the Gateway API Inference Extension pick them.
//!
//! Three scorers, each from 0 to 1, and the highest weighted sum wins:
//!
//! - queue: 1 for the shortest queue of waiting requests among the candidates, 0 for the longest; 1 where all are equal
//! - KV cache: the share that is not in use
//! - prefix: the share of the prompt that the replica holds, as far as earlier decisions tell
//!
//! Load is that of the last probe; a replica without a probe scores 0 on the first two. Ties fall by chance. llm-d's default
//! weights are 2, 2 and 3. Unlike llm-d, the policy knows the prefix by this project's index instead of blocks of 64 bytes.

use isotherm_router::{Policy, Reason, ReplicaIndex, Request, Selection, View};

/// Weights of the scorers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScorerWeights {
    /// Weight of the queue scorer.
    pub queue: f64,
    /// Weight of the scorer of KV cache utilisation.
    pub kv_cache: f64,
    /// Weight of the prefix scorer.
    pub prefix: f64,
}

impl Default for ScorerWeights {
    /// The weights of llm-d's router without a configuration.
    fn default() -> Self {
        Self {
            queue: 2.0,
            kv_cache: 2.0,
            prefix: 3.0,
        }
    }
}

/// llm-d's weighted scorers.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndpointScorers(pub ScorerWeights);

/// Shortest and longest queue among the candidates that were probed.
#[derive(Clone, Copy)]
struct QueueRange {
    least: u32,
    most: u32,
}

impl QueueRange {
    fn of(view: &View<'_>) -> Self {
        let queues = || {
            let loads = view.candidates().iter().filter_map(|one| view.load(one));
            loads.map(|load| load.pending)
        };
        Self {
            least: queues().min().unwrap_or_default(),
            most: queues().max().unwrap_or_default(),
        }
    }

    fn score(self, queue: u32) -> f64 {
        if self.most == self.least {
            return 1.0;
        }
        f64::from(self.most.saturating_sub(queue)) / f64::from(self.most - self.least)
    }
}

impl EndpointScorers {
    fn sum(
        &self,
        request: &Request,
        replica: ReplicaIndex,
        queues: QueueRange,
        view: &View<'_>,
    ) -> f64 {
        let Self(weights) = self;
        let matched = view.match_on(request, replica);
        let prefix = weights.prefix * request.fingerprint.share_at(matched.depth);
        let load = view.load(replica).map_or(0.0, |load| {
            let unused = 1.0 - f64::from(load.kv_usage.unwrap_or(0.0));
            weights.queue * queues.score(load.pending) + weights.kv_cache * unused
        });
        prefix + load
    }
}

impl Policy for EndpointScorers {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let queues = QueueRange::of(view);
        let scored = view.candidates().iter().map(|replica| {
            let score = self.sum(request, replica, queues, view);
            (score, chance(request, replica), replica)
        });
        let best = scored.max_by(|(a, chance_a, _), (b, chance_b, _)| {
            a.total_cmp(b).then_with(|| chance_a.cmp(chance_b))
        });
        let (_, _, replica) = best?;
        let matched = view.match_on(request, replica);
        Some(Selection::to(replica, Reason::Prefix, Some(matched)))
    }

    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        self.sum(request, replica, QueueRange::of(view), view)
    }
}

/// A number that orders equal replicas by chance, another way for each request (the finaliser of splitmix64).
fn chance(request: &Request, replica: ReplicaIndex) -> u64 {
    let mut word = request.id.0.rotate_left(17) ^ (replica.index() as u64);
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_scored_between_the_shortest_and_the_longest() {
        let range = QueueRange { least: 2, most: 6 };
        assert_eq!([2, 3, 6].map(|queue| range.score(queue)), [1.0, 0.75, 0.0]);
        let equal = QueueRange { least: 4, most: 4 };
        assert_eq!(equal.score(4), 1.0);
    }
}
