//! Costs that compare with those of peer regions.
//!
//! A pool tells its peers what a prompt costs that none of its replicas holds, in parts: the wait, and the cost to others. The
//! lateness is not linear, and each region has its own SLO, so the receiver of a report adds it. A local replica is priced from the
//! same parts: the costs of two regions in the same state differ by the round trip between them, whatever the parts leave out.

use super::Isotherm;
use super::cost::{CandidateCost, CostModel, with_lateness};
use super::prompt_load::COMPARED_MAX;
use super::query::{CandidateQuery, MatchCost};
use crate::constant::constants;
use crate::policy::{RegionCosts, View};
use crate::replica_index::ReplicaIndex;
use crate::{PromptCost, Request};

constants! {
    /// Tokens of the prompt whose cost a pool reports: prompts of about this length cause most of the work.
    PRICED_TOKENS: f64 = 4_000.0;
}

impl RegionCosts for Isotherm {
    fn prompt_cost(&self, view: &View<'_>) -> Option<PromptCost> {
        let cost_model = CostModel::without_affinity(view);
        let fewest = view.pool.replicas.by_load().take(COMPARED_MAX);
        let load = cost_model.load_of_prompt(PRICED_TOKENS.get());
        let priced = load.least_loaded(fewest, view).replicas();
        let priced = priced.map(|replica| cost_model.price_unheld(replica, PRICED_TOKENS.get()));
        let cheapest = priced.min_by(|a, b| a.cost.total_cmp(&b.cost))?;
        (!has_unpriced_prefill(view)).then(|| parts(cheapest.replica, &cost_model))
    }

    fn cost_here(
        &self,
        request: &Request,
        replica: ReplicaIndex,
        wait_s: f64,
        view: &View<'_>,
    ) -> Option<f64> {
        if request.adapter.is_some() || has_unpriced_prefill(view) {
            return None;
        }
        let query = CandidateQuery::new(request, view);
        let blocks = request.fingerprint.blocks();
        let matched = view
            .pool
            .caches
            .index
            .deepest_of_within(blocks, &query.known, replica);
        let tokens = MatchCost::of(matched, &query, view).uncached_on(replica, &query, view);
        let parts = parts(replica, &CostModel::without_affinity(view));
        Some(self.cost_there(&parts, tokens, wait_s, view))
    }

    fn cost_there(&self, cost: &PromptCost, tokens: f64, wait_s: f64, view: &View<'_>) -> f64 {
        let [first_token_s, prompt_token_s, others_s, others_token_s] = cost.parts().map(f64::from);
        let ttft_s = wait_s + first_token_s + prompt_token_s * tokens;
        with_lateness(ttft_s, view.timing.objective) + others_s + others_token_s * tokens
    }
}

/// Whether the parts leave out a cost of this pool: prefill replicas compute a part of its prompts.
fn has_unpriced_prefill(view: &View<'_>) -> bool {
    !view.pool.replicas.prefillers().is_empty()
}

/// The cost of a prompt that the replica does not hold, in parts.
#[expect(clippy::cast_possible_truncation, reason = "seconds for a message")]
fn parts(replica: ReplicaIndex, cost_model: &CostModel<'_>) -> PromptCost {
    let objective = cost_model.view.pool.common_objective();
    let empty = cost_model.price_unheld(replica, 0.0);
    let whole = cost_model.price_unheld(replica, PRICED_TOKENS.get());
    let others_s = |candidate: &CandidateCost| {
        (candidate.cost - with_lateness(candidate.ttft_s, objective)).max(0.0)
    };
    let per_token =
        |empty_s: f64, whole_s: f64| ((whole_s - empty_s) / PRICED_TOKENS.get()).max(0.0);
    PromptCost {
        first_token_s: empty.ttft_s as f32,
        prompt_token_s: per_token(empty.ttft_s, whole.ttft_s) as f32,
        others_s: others_s(&empty) as f32,
        others_token_s: per_token(others_s(&empty), others_s(&whole)) as f32,
    }
}
