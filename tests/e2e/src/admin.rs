//! The service's admin API and metrics: reading them, and waiting for a value.

use std::net::SocketAddr;
use std::sync::Mutex;

use anyhow::Context as _;
use isotherm_harness::{Service, wait_for};
use reqwest::Method;
use serde_json::Value;

use crate::WAIT_MAX;

/// Reads the state of the service's only pool.
///
/// # Errors
/// When the service does not answer.
pub async fn pool(service: &Service) -> anyhow::Result<Value> {
    let pools = service
        .admin_request(Method::GET, "/api/pools", None)
        .await?;
    pools.get(0).cloned().context("the service has no pool")
}

/// Reads a number of the service's only pool, such as `queue_length` or `counters/finished_ok`.
///
/// # Errors
/// When the service does not answer, or has no such number.
pub async fn pool_number(service: &Service, path: &str) -> anyhow::Result<u64> {
    let pool = pool(service).await?;
    let number = pool.pointer(&format!("/{path}")).and_then(Value::as_u64);
    number.with_context(|| format!("no number {path} in {pool}"))
}

/// Waits until a number of the service's only pool is `wanted`.
///
/// # Errors
/// When the service does not answer, or the number never reaches `wanted`.
pub async fn wait_for_pool(service: &Service, path: &str, wanted: u64) -> anyhow::Result<()> {
    let last = Mutex::new(None);
    wait_for(WAIT_MAX, &format!("{path} to be {wanted}"), || async {
        let number = pool_number(service, path).await?;
        if let Ok(mut last) = last.lock() {
            *last = Some(number);
        }
        Ok((number == wanted).then_some(()))
    })
    .await
    .with_context(|| {
        let process = service
            .process()
            .map(isotherm_harness::process::Process::log);
        format!("last value: {last:?}; log: {}", process.unwrap_or_default())
    })
}

/// Waits until the service knows the end of every request.
///
/// A client sees the end of its response a moment before the service does.
///
/// # Errors
/// When a request stays in flight.
pub async fn wait_until_idle(service: &Service) -> anyhow::Result<()> {
    wait_for_pool(service, "in_flight", 0).await
}

/// Reads the state of one replica.
///
/// # Errors
/// When the service does not answer, or does not know the replica.
pub async fn replica(service: &Service, address: SocketAddr) -> anyhow::Result<Value> {
    let replicas = service.replicas().await?;
    let wanted = address.to_string();
    let found = replicas.as_array().and_then(|replicas| {
        let has_address =
            |replica: &&Value| replica.get("address").and_then(Value::as_str) == Some(&wanted);
        replicas.iter().find(has_address)
    });
    found
        .cloned()
        .with_context(|| format!("no {wanted} in {replicas}"))
}

/// Waits until a member of a replica's state is `wanted`, for example `outstanding` or `availability`.
///
/// # Errors
/// When the service does not answer, or the member never is `wanted`.
pub async fn wait_for_replica(
    service: &Service,
    address: SocketAddr,
    member: &str,
    wanted: impl Into<Value>,
) -> anyhow::Result<()> {
    let wanted = wanted.into();
    let what = format!("{member} of {address} to be {wanted}");
    wait_for(WAIT_MAX, &what, || async {
        let replica = replica(service, address).await?;
        Ok((replica.get(member) == Some(&wanted)).then_some(()))
    })
    .await
}

/// Reads a metric: the sum of its series that have all of `labels`; `None` when there is no such series.
///
/// # Errors
/// When the service does not answer.
pub async fn metric(
    service: &Service,
    name: &str,
    labels: &[(&str, &str)],
) -> anyhow::Result<Option<f64>> {
    let page = service.metrics().await?;
    let series = page.lines().filter(|line| {
        let has_label =
            |(label, value): &(&str, &str)| line.contains(&format!("{label}=\"{value}\""));
        line.split(['{', ' ']).next() == Some(name) && labels.iter().all(has_label)
    });
    let values: Vec<f64> = series
        .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
        .collect();
    Ok((!values.is_empty()).then(|| values.iter().sum()))
}

/// Reads a counter like [`metric`]; zero when there is no such series.
///
/// # Errors
/// When the service does not answer.
pub async fn counter(
    service: &Service,
    name: &str,
    labels: &[(&str, &str)],
) -> anyhow::Result<u64> {
    let sum = metric(service, name, labels).await?.unwrap_or(0.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a counter is a whole number far below 2^53"
    )]
    Ok(sum as u64)
}

/// Waits until a metric satisfies `is_wanted`.
///
/// # Errors
/// When the service does not answer, or the metric never satisfies it.
pub async fn wait_for_metric(
    service: &Service,
    name: &str,
    labels: &[(&str, &str)],
    is_wanted: impl Fn(f64) -> bool,
) -> anyhow::Result<()> {
    let what = format!("the wanted value of {name} {labels:?}");
    wait_for(WAIT_MAX, &what, || async {
        let value = metric(service, name, labels).await?;
        Ok(value.filter(|value| is_wanted(*value)).map(|_| ()))
    })
    .await
}
