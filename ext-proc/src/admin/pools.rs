//! `GET /api/pools`, and the pool that a request names.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Json;
use isotherm_router::{Stats, TierStatus};
use serde::Deserialize;

use super::error::ApiError;
use super::{AdminState, view};
use crate::clock::millis;
use crate::pool::{CountedTokens, Pool, PoolRegistry, sources};
use crate::tier;

/// The query that names a pool.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PoolQuery {
    pub(super) pool: Option<String>,
}

/// The query that names a pool, or why it is no such query.
pub(super) type PoolQueryResult = Result<Query<PoolQuery>, QueryRejection>;

pub(super) async fn list(State(admin): AdminState) -> Json<Vec<view::PoolView>> {
    let pools = admin.pool_registry.pools();
    Json(pools.iter().map(|pool| pool_view(pool)).collect())
}

/// Returns the pool of the model `name`, or every pool without a name.
pub(super) fn find_all(
    pools: &PoolRegistry,
    name: Option<&str>,
) -> Result<Vec<Arc<Pool>>, ApiError> {
    match name {
        Some(name) => Ok(vec![find(pools, Some(name))?]),
        None => Ok(pools.pools()),
    }
}

/// Returns the pool of the model `name`; without a name, the only pool.
pub(super) fn find(pools: &PoolRegistry, name: Option<&str>) -> Result<Arc<Pool>, ApiError> {
    let pools = pools.pools();
    let names = || {
        let names = pools.iter().map(|pool| format!("`{}`", pool.name()));
        Vec::from_iter(names).join(", ")
    };
    match (name, pools.as_slice()) {
        (None, [only]) => Ok(Arc::clone(only)),
        (None, _) => Err(ApiError::bad_request(format!(
            "name the pool: there are {}",
            names()
        ))),
        (Some(name), _) => {
            let found = pools.iter().find(|pool| **pool.name() == *name);
            found.cloned().ok_or_else(|| {
                let message = format!("no pool `{name}`; there are {}", names());
                ApiError::new(StatusCode::NOT_FOUND, "unknown_pool", message)
            })
        }
    }
}

fn pool_view(pool: &Pool) -> view::PoolView {
    let config = Arc::clone(&pool.config().borrow());
    let stats = pool.stats();
    view::PoolView {
        pool: pool.name().to_string(),
        aliases: config.aliases.clone(),
        cluster: config.cluster.clone(),
        policy: config.router.policy.to_string(),
        push: config.router.push.to_string(),
        replicas: pool.members().borrow().len(),
        has_synced: pool.has_synced(),
        source_problem: pool.source_problem().map(|problem| problem.to_string()),
        available_replicas: stats.available_replicas,
        queue_length: stats.queue_length,
        oldest_wait_ms: millis(stats.oldest_wait),
        in_flight: stats.in_flight,
        index_nodes: stats.index.nodes,
        index_bytes: stats.index.bytes,
        tiers: tier_views(pool),
        counters: counters_view(&stats, pool.counted_tokens()),
        learned: learned_view(pool),
    }
}

pub(super) fn learned_view(pool: &Pool) -> view::LearnedView {
    let learned = pool.estimates();
    let sources = sources(&learned.signals).into_iter();
    view::LearnedView {
        prompt_token_s: learned.prompt_token_s,
        first_token_s: learned.first_token_s,
        output_token_s: learned.output_token_s,
        bytes_per_token: learned.bytes_per_token,
        output_tokens: learned.output_tokens,
        sources: sources
            .map(|(quantity, source)| (quantity.to_owned(), source.as_ref().to_owned()))
            .collect(),
    }
}

fn counters_view(stats: &Stats, counted: CountedTokens) -> view::CountersView {
    fn by_reason<R: Copy + Into<&'static str>>(counts: &BTreeMap<R, u64>) -> BTreeMap<String, u64> {
        let counts = counts.iter();
        let counts = counts.map(|(reason, count)| ((*reason).into(), *count));
        counts
            .map(|(reason, count): (&str, _)| (reason.to_owned(), count))
            .collect()
    }
    let counters = &stats.counters;
    view::CountersView {
        arrived: counters.arrived,
        queued: counters.queued,
        decisions: by_reason(&counters.decisions),
        rejects: by_reason(&counters.rejects),
        finished_ok: counters.finished_ok,
        finished_failed: counters.finished_failed,
        overridden: counters.overridden,
        timed_out: counters.timed_out,
        measured_prompt_tokens: counters.measured_prompt_tokens,
        measured_cached_tokens: counters.measured_cached_tokens,
        predicted_cached_tokens: counters.predicted_cached_tokens,
        // A cast from float saturates.
        counted_prompt_tokens: counted.prompt as u64,
        counted_cached_tokens: counted.cached as u64,
    }
}

/// The tiers of a pool; none in a pool without them.
fn tier_views(pool: &Pool) -> Vec<view::TierView> {
    let tiers = pool.tiers().into_iter().flatten();
    tiers.map(|status| tier_view(&status)).collect()
}

fn tier_view(status: &TierStatus) -> view::TierView {
    view::TierView {
        tier: tier::name(status.tier).to_owned(),
        waiting: status.waiting,
        oldest_wait_ms: millis(status.oldest_wait),
        arrived: status.arrived,
        dispatched: status.dispatched,
        rejected: status.rejected,
        within_slo: status.within_slo,
        past_slo: status.past_slo,
    }
}
