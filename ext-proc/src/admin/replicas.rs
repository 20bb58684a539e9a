//! `/api/replicas`: shows, adds, removes, drains and flushes replicas at run time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Json;
use isotherm_router::{ReplicaStatus, Role, Time};
use serde::Deserialize;
use tokio::time::Instant;

use super::error::ApiError;
use super::pools::{PoolQueryResult, find, find_all};
use super::server::{ConnectionLifetime, DRAIN_WAIT_MS_MAX};
use super::{AdminState, view};
use crate::clock::millis;
use crate::pool::ReplicaAdapters;

pub(super) async fn list(
    State(admin): AdminState,
    query: PoolQueryResult,
) -> Result<Json<Vec<view::ReplicaView>>, ApiError> {
    let pools = find_all(&admin.pool_registry, query?.pool.as_deref())?;
    let mut replicas = Vec::new();
    for pool in pools {
        let now = pool.clock().now();
        let leased = pool.leased();
        let statuses = pool.replicas();
        let failures = pool.failures().look(&statuses);
        replicas.extend(statuses.into_iter().map(|status| {
            let failure = failures.get(&status.id).map(|failure| view::FailureView {
                since_unix_ms: failure.since_unix_ms,
                reason: failure.reason(status.availability),
            });
            let region = leased.get(&status.id).map(ToString::to_string);
            let adapters = status.adapters.as_ref();
            let adapters = adapters.map(|status| adapters_view(pool.adapter_names(status)));
            let has_load = status.load.is_some();
            let running = pool.running_of(status.id).filter(|_| has_load);
            let mut replica = replica_view(pool.name(), status, region, now);
            replica.running = replica.running.or(running);
            view::ReplicaView {
                adapters,
                failure,
                ..replica
            }
        }));
    }
    Ok(Json(replicas))
}

pub(super) async fn add(
    State(admin): AdminState,
    body: Result<Json<view::NewReplica>, JsonRejection>,
) -> Result<StatusCode, ApiError> {
    let Json(new) = body?;
    let addr = parse(&new.address)?;
    let pool = find(&admin.pool_registry, new.pool.as_deref())?;
    let role = new.role.as_deref().map_or(Ok(Role::Both), parse_role)?;
    pool.add_replica_as(addr, role)?;
    // A pool with a replica can serve, even if its DNS name cannot be resolved.
    pool.mark_synced();
    tracing::info!(pool = %pool.name(), replica = %addr, "operator added a replica");
    Ok(StatusCode::CREATED)
}

/// Removes a replica.
pub(super) async fn remove(
    State(admin): AdminState,
    Path(address): Path<String>,
    query: PoolQueryResult,
) -> Result<StatusCode, ApiError> {
    let addr = parse(&address)?;
    let pool = find(&admin.pool_registry, query?.pool.as_deref())?;
    pool.remove_replica(addr)?;
    tracing::info!(pool = %pool.name(), replica = %addr, "operator removed a replica");
    Ok(StatusCode::NO_CONTENT)
}

/// The query of a drain.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DrainQuery {
    pool: Option<String>,
    /// Longest wait for the replica's last request.
    #[serde(default)]
    wait_ms: u64,
}

/// Drains a replica. With `wait_ms`, answers when the replica has no request left, so that a `preStop` hook keeps its process alive
/// until then.
pub(super) async fn drain(
    State(admin): AdminState,
    Extension(lifetime): Extension<ConnectionLifetime>,
    Path(address): Path<String>,
    query: Result<Query<DrainQuery>, QueryRejection>,
) -> Result<StatusCode, ApiError> {
    let addr = parse(&address)?;
    let Query(query) = query?;
    if query.wait_ms > DRAIN_WAIT_MS_MAX {
        return Err(ApiError::bad_request(format!(
            "`wait_ms` is at most {DRAIN_WAIT_MS_MAX}"
        )));
    }
    let pool = find(&admin.pool_registry, query.pool.as_deref())?;
    let replica = pool.drain_replica(addr)?;
    tracing::info!(pool = %pool.name(), replica = %addr, wait_ms = query.wait_ms, "operator drains a replica");
    if query.wait_ms == 0 {
        return Ok(StatusCode::NO_CONTENT);
    }
    let _kept_open = lifetime.extend().await;
    let deadline = Instant::now() + Duration::from_millis(query.wait_ms);
    match pool.wait_until_empty(replica, deadline).await {
        0 => Ok(StatusCode::NO_CONTENT),
        left => {
            let message = format!(
                "{addr} drains and still has {left} requests after {} ms: ask again",
                query.wait_ms
            );
            let status = StatusCode::REQUEST_TIMEOUT;
            Err(ApiError::new(status, "still_busy", message))
        }
    }
}

/// Lets a draining replica serve again.
pub(super) async fn undrain(
    State(admin): AdminState,
    Path(address): Path<String>,
    query: PoolQueryResult,
) -> Result<StatusCode, ApiError> {
    let addr = parse(&address)?;
    let pool = find(&admin.pool_registry, query?.pool.as_deref())?;
    pool.resume_replica(addr)?;
    tracing::info!(pool = %pool.name(), replica = %addr, "operator lets a replica serve again");
    Ok(StatusCode::NO_CONTENT)
}

/// Forgets what a replica's cache held.
pub(super) async fn flush(
    State(admin): AdminState,
    Path(address): Path<String>,
    query: PoolQueryResult,
) -> Result<StatusCode, ApiError> {
    let addr = parse(&address)?;
    let pool = find(&admin.pool_registry, query?.pool.as_deref())?;
    pool.forget_cache(addr)?;
    tracing::info!(pool = %pool.name(), replica = %addr, "operator says that the cache of a replica is empty");
    Ok(StatusCode::NO_CONTENT)
}

/// Reads a body, and its address and role.
pub(super) fn read_body(body: &[u8]) {
    if let Ok(Json(new)) = Json::<view::NewReplica>::from_bytes(body) {
        let _ = parse(&new.address);
        let _ = new.role.as_deref().map(parse_role);
    }
}

fn parse(address: &str) -> Result<SocketAddr, ApiError> {
    match address.parse::<SocketAddr>() {
        Ok(addr) if addr.port() != 0 => Ok(addr),
        _ => Err(ApiError::bad_request(format!(
            "`{address}` is not ip:port, such as 10.0.0.7:8000 or [::1]:8000"
        ))),
    }
}

fn parse_role(role: &str) -> Result<Role, ApiError> {
    let message = || format!("`{role}` is not a role: both, prefill or decode");
    role.parse().map_err(|_| ApiError::bad_request(message()))
}

fn replica_view(
    pool: &Arc<str>,
    status: ReplicaStatus,
    owner: Option<String>,
    now: Time,
) -> view::ReplicaView {
    view::ReplicaView {
        pool: pool.to_string(),
        address: status.name,
        role: status.role.as_ref().to_owned(),
        availability: status.availability.as_ref().to_owned(),
        draining: status.draining,
        owner,
        outstanding: status.outstanding,
        pending: status.load.map(|load| load.pending),
        running: status.load.and_then(|load| load.running),
        headroom: status.headroom,
        kv_usage: status.load.and_then(|load| load.kv_usage),
        kv_capacity_tokens: status.load.and_then(|load| load.kv_capacity_tokens),
        without_metrics: !status.has_metrics,
        several_processes: status.has_several_processes,
        probe_age_ms: status.probed.map(|sent| millis(now.since(sent))),
        adapters: None,
        failure: None,
    }
}

fn adapters_view(adapters: ReplicaAdapters) -> view::AdaptersView {
    let text = |names: Vec<Arc<str>>| names.iter().map(ToString::to_string).collect();
    view::AdaptersView {
        listed: adapters.listed.map(text),
        loaded: text(adapters.loaded),
        waiting: text(adapters.waiting),
        slots: adapters.slots,
    }
}
