//! Comparison by load of replicas that hold the same part of a prompt. A price for each would take longer.

use super::cost::CostModel;
use crate::policy::View;
use crate::replica::Rank;
use crate::replica_index::ReplicaIndex;

/// Replicas of one comparison that are priced: the least loaded ones.
const PRICED_MAX: usize = 8;
/// Replicas of one comparison: holders of one prefix, or replicas with the fewest requests.
pub(super) const COMPARED_MAX: usize = 32;

/// Measure of the load of replicas that hold the same part of a prompt, to compare them without their prices.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromptLoad {
    /// Cost of each request in flight, in seconds.
    per_request_s: f64,
}

impl PromptLoad {
    /// Rank of a replica by its queued prefill and its requests in flight, in microseconds.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the load is positive, and the cast saturates"
    )]
    #[inline]
    fn rank(&self, replica: ReplicaIndex, view: &View<'_>) -> Rank {
        let rank = view.pool.replicas.rank(replica);
        let backlog_s = view.pool.replicas.backlog_s(replica, view.pool.now);
        let load_s = backlog_s + self.per_request_s * f64::from(rank.requests());
        rank.with_load((load_s * 1e6) as u32)
    }

    /// A few replicas, least loaded first.
    pub(super) fn least_loaded(
        &self,
        replicas: impl Iterator<Item = ReplicaIndex>,
        view: &View<'_>,
    ) -> LeastLoaded {
        let mut least_loaded = LeastLoaded::default();
        for replica in replicas {
            least_loaded.add(self.rank(replica, view));
        }
        least_loaded
    }
}

impl CostModel<'_> {
    /// The comparison by load for a prompt with so many tokens to compute, at the pool's speed.
    pub(super) fn load_of_prompt(&self, tokens: f64) -> PromptLoad {
        let token_s = self.view.pool.replicas.latency().prefill.each_s;
        PromptLoad {
            per_request_s: token_s * tokens,
        }
    }
}

/// The least loaded replicas of a comparison, least loaded first.
#[derive(Clone, Copy)]
pub(super) struct LeastLoaded {
    ranks: [Rank; PRICED_MAX],
    added: usize,
}

impl Default for LeastLoaded {
    fn default() -> Self {
        Self {
            ranks: [Rank::LAST; PRICED_MAX],
            added: 0,
        }
    }
}

impl LeastLoaded {
    #[inline]
    fn add(&mut self, mut rank: Rank) {
        // The direction of each comparison is random, so a branch would be mispredicted.
        for place in &mut self.ranks {
            (*place, rank) = (rank.min(*place), rank.max(*place));
        }
        self.added += 1;
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.added == 0
    }

    pub(super) fn replicas(self) -> impl Iterator<Item = ReplicaIndex> {
        self.ranks.into_iter().take(self.added).map(Rank::slot)
    }
}
