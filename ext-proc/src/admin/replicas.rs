//! `/api/replicas`: who there is, and coming and going at run time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Json;
use isotherm_router::{ReplicaId, ReplicaStatus, Time};

use super::auth::Authorization;
use super::error::ApiError;
use super::pools::{PoolQuery, find};
use super::{AdminState, view};
use crate::pool::{Member, Pool};

type PoolOf = Result<Query<PoolQuery>, QueryRejection>;

pub(super) async fn list(
    State(admin): AdminState,
    query: PoolOf,
) -> Result<Json<Vec<view::ReplicaView>>, ApiError> {
    let Query(query) = query?;
    let pools = match &query.pool {
        Some(name) => vec![find(&admin.pool_registry, Some(name))?],
        None => admin.pool_registry.pools(),
    };
    let mut replicas = Vec::new();
    for pool in pools {
        let now = pool.clock().now();
        let adopted = adopted(&pool);
        replicas.extend(pool.replicas().into_iter().map(|status| {
            let region = adopted.get(&status.id).map(ToString::to_string);
            view_of(pool.name(), status, region, now)
        }));
    }
    Ok(Json(replicas))
}

pub(super) async fn add(
    _: Authorization,
    State(admin): AdminState,
    body: Result<Json<view::NewReplica>, JsonRejection>,
) -> Result<StatusCode, ApiError> {
    let Json(new) = body?;
    let addr = parse(&new.address)?;
    let pool = find(&admin.pool_registry, new.pool.as_deref())?;
    pool.add_replica(addr)?;
    // An operator does not wait for a name that cannot be resolved.
    pool.mark_synced();
    tracing::info!(pool = %pool.name(), replica = %addr, "replica added by hand");
    Ok(StatusCode::CREATED)
}

pub(super) async fn remove(
    _: Authorization,
    State(admin): AdminState,
    Path(address): Path<String>,
    query: PoolOf,
) -> Result<StatusCode, ApiError> {
    let addr = parse(&address)?;
    let pool = find(&admin.pool_registry, query?.pool.as_deref())?;
    pool.remove_replica(addr)?;
    tracing::info!(pool = %pool.name(), replica = %addr, "replica removed by hand");
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn drain(
    _: Authorization,
    State(admin): AdminState,
    Path(address): Path<String>,
    query: PoolOf,
) -> Result<StatusCode, ApiError> {
    let addr = parse(&address)?;
    let pool = find(&admin.pool_registry, query?.pool.as_deref())?;
    pool.drain_replica(addr)?;
    tracing::info!(pool = %pool.name(), replica = %addr, "replica drained by hand");
    Ok(StatusCode::NO_CONTENT)
}

fn parse(address: &str) -> Result<SocketAddr, ApiError> {
    match address.parse::<SocketAddr>() {
        Ok(addr) if addr.port() != 0 => Ok(addr),
        _ => Err(ApiError::bad_request(format!(
            "`{address}` is not ip:port, such as 10.0.0.7:8000 or [::1]:8000"
        ))),
    }
}

/// Replicas of other regions, and their regions.
fn adopted(pool: &Pool) -> BTreeMap<ReplicaId, Arc<str>> {
    let Some(peer_table) = pool.peer_table() else {
        return BTreeMap::new();
    };
    let members = Arc::clone(&pool.members().borrow());
    let region = |member: &Member| {
        let region = peer_table.get(member.adopted_from?)?;
        Some((member.id, Arc::clone(&region.name)))
    };
    members.iter().filter_map(region).collect()
}

fn view_of(
    pool: &str,
    status: ReplicaStatus,
    adopted_from: Option<String>,
    now: Time,
) -> view::ReplicaView {
    let age = status.probed.map(|sent| now.since(sent).as_millis());
    view::ReplicaView {
        pool: pool.to_owned(),
        address: status.name,
        availability: status.availability.as_str().to_owned(),
        draining: status.draining,
        adopted_from,
        outstanding: status.outstanding,
        pending: status.load.map(|load| load.pending),
        running: status.load.and_then(|load| load.running),
        headroom: status.headroom,
        kv_usage: status.load.and_then(|load| load.kv_usage),
        kv_capacity_tokens: status.load.and_then(|load| load.kv_capacity_tokens),
        probe_age_ms: age.map(|age| u64::try_from(age).unwrap_or(u64::MAX)),
    }
}
