//! `GET /api/batch` and `GET /api/tenants`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;

use super::error::ApiError;
use super::pools::{PoolQueryResult, find_all};
use super::{AdminState, view};
use crate::clock::millis;
use crate::pool::{NamedTenant, Pool};

pub(super) async fn batch(
    State(admin): AdminState,
    query: PoolQueryResult,
) -> Result<Json<Vec<view::BatchView>>, ApiError> {
    let pools = find_all(&admin.pool_registry, query?.pool.as_deref())?;
    Ok(Json(pools.iter().map(|pool| batch_view(pool)).collect()))
}

pub(super) async fn tenants(
    State(admin): AdminState,
    query: PoolQueryResult,
) -> Result<Json<Vec<view::PoolTenantsView>>, ApiError> {
    let pools = find_all(&admin.pool_registry, query?.pool.as_deref())?;
    Ok(Json(pools.iter().map(|pool| tenants_view(pool)).collect()))
}

fn batch_view(pool: &Pool) -> view::BatchView {
    let config = Arc::clone(&pool.config().borrow());
    let status = pool.batch_status();
    let rules = config.router.tiers.as_ref();
    let status_or_none = status.clone().unwrap_or_default();
    view::BatchView {
        pool: pool.name().to_string(),
        has_gate: status.is_some(),
        utilisation: status_or_none.utilisation,
        credit: status_or_none.credit,
        held: status_or_none.held,
        held_max: rules.map_or(0, |rules| rules.batch.length_max),
        oldest_wait_ms: millis(status_or_none.oldest_wait),
        released: status_or_none
            .released
            .iter()
            .map(|(reason, count)| (reason.as_ref().to_owned(), *count))
            .collect(),
    }
}

fn tenants_view(pool: &Pool) -> view::PoolTenantsView {
    view::PoolTenantsView {
        pool: pool.name().to_string(),
        tenants: pool.tenants().iter().map(tenant_view).collect(),
    }
}

fn tenant_view(tenant: &NamedTenant) -> view::TenantView {
    let status = &tenant.status;
    view::TenantView {
        tenant: tenant.name.to_string(),
        requests: status.requests,
        refused: status.refused,
        waiting: status.waiting,
        in_flight: status.in_flight,
        tokens: status.tokens,
        prompt_tokens: status.prompt_tokens,
        cached_tokens: status.cached_tokens,
    }
}
