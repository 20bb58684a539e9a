//! What the service says of itself, and waiting until it says something else.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use isotherm_harness::{Service, wait_for};
use reqwest::Method;
use serde_json::Value;

use crate::WAIT_MAX;

/// What it says of its only pool.
///
/// # Errors
/// When it does not answer.
pub async fn pool(service: &Service) -> anyhow::Result<Value> {
    let pools = service
        .admin_request(Method::GET, "/api/pools", None)
        .await?;
    pools.get(0).cloned().context("the service has no pool")
}

/// A number of its only pool, such as `queue_length` or `counters/finished_ok`.
///
/// # Errors
/// When it does not answer, or there is no such number.
pub async fn pool_number(service: &Service, path: &str) -> anyhow::Result<u64> {
    let pool = pool(service).await?;
    let number = pool.pointer(&format!("/{path}")).and_then(Value::as_u64);
    number.with_context(|| format!("no number {path} in {pool}"))
}

/// How many requests wait in it.
///
/// # Errors
/// When it does not answer.
pub async fn queue_length(service: &Service) -> anyhow::Result<u64> {
    pool_number(service, "queue_length").await
}

/// Waits until a number of its only pool is `wanted`.
///
/// # Errors
/// When it does not answer, or the number never is.
pub async fn becomes(service: &Service, path: &str, wanted: u64) -> anyhow::Result<()> {
    let last = AtomicU64::new(0);
    wait_for(WAIT_MAX, &format!("{path} to be {wanted}"), || async {
        let number = pool_number(service, path).await?;
        last.store(number, Ordering::Relaxed);
        Ok((number == wanted).then_some(()))
    })
    .await
    .with_context(|| {
        let last = last.load(Ordering::Relaxed);
        format!(
            "it was {last} at last; the service's log:\n{}",
            log(service)
        )
    })
}

/// What it says of one replica.
///
/// # Errors
/// When it does not answer, or does not know the replica.
pub async fn replica(service: &Service, address: SocketAddr) -> anyhow::Result<Value> {
    let replicas = service.replicas().await?;
    let wanted = address.to_string();
    let found = replicas.as_array().and_then(|replicas| {
        replicas
            .iter()
            .find(|replica| replica.get("address").and_then(Value::as_str) == Some(&wanted))
    });
    found
        .cloned()
        .with_context(|| format!("no {wanted} in {replicas}"))
}

/// Waits until a member of a replica is `wanted`, for example `outstanding` or `availability`.
///
/// # Errors
/// When the service does not answer, or it never is.
pub async fn replica_becomes(
    service: &Service,
    address: SocketAddr,
    member: &str,
    wanted: impl Into<Value>,
) -> anyhow::Result<()> {
    let wanted = wanted.into();
    wait_for(
        WAIT_MAX,
        &format!("{member} of {address} to be {wanted}"),
        || async {
            let replica = replica(service, address).await?;
            Ok((replica.get(member) == Some(&wanted)).then_some(()))
        },
    )
    .await
}

/// The sum of a metric's series on the service's page, whatever their labels.
///
/// # Errors
/// When the service does not answer.
pub async fn metric(service: &Service, name: &str) -> anyhow::Result<f64> {
    let page = service.metrics().await?;
    let values = page
        .lines()
        .filter(|line| line.split(['{', ' ']).next() == Some(name))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(values.sum())
}

fn log(service: &Service) -> String {
    service.process().map_or_else(
        |error| error.to_string(),
        isotherm_harness::process::Process::log,
    )
}
