//! The service's admin API and metrics: reading them, and waiting for a value.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use isotherm_harness::process::Process;
use isotherm_harness::{Document, Service, wait_for, wait_until};
use serde_json::Value;

use crate::WAIT_MAX;

/// Reads the state of the service's only pool.
pub async fn pool(service: &Service) -> anyhow::Result<Value> {
    let pools = service.get("/api/pools").await?;
    pools.get(0).cloned().context("the service has no pool")
}

/// Reads a number of the service's only pool, such as `queue_length` or `counters/finished_ok`.
pub async fn pool_number(service: &Service, path: &str) -> anyhow::Result<u64> {
    let pool = pool(service).await?;
    let number = pool.pointer(&format!("/{path}")).and_then(Value::as_u64);
    number.with_context(|| format!("no number {path} in {pool}"))
}

/// Waits until a number of the service's only pool is `expected`.
pub async fn wait_for_pool(service: &Service, path: &str, expected: u64) -> anyhow::Result<()> {
    let last = AtomicU64::new(u64::MAX);
    wait_for(WAIT_MAX, &format!("{path} to be {expected}"), || async {
        let number = pool_number(service, path).await?;
        last.store(number, Ordering::Relaxed);
        Ok((number == expected).then_some(()))
    })
    .await
    .with_context(|| format!("last value: {last:?}; log: {}", log(service)))
}

/// Waits until the service's log contains `text`.
pub async fn wait_for_log(service: &Service, text: &str) -> anyhow::Result<()> {
    wait_until(WAIT_MAX, &format!("`{text}` in the log"), || {
        std::future::ready(log(service).contains(text))
    })
    .await
}

fn log(service: &Service) -> String {
    let process = service.process();
    process.map(Process::log).unwrap_or_default()
}

/// Waits until the service knows the end of every request.
///
/// A client sees the end of its response a moment before the service does.
pub async fn wait_until_idle(service: &Service) -> anyhow::Result<()> {
    wait_for_pool(service, "in_flight", 0).await
}

/// Reads the state of one replica.
pub async fn replica(service: &Service, address: SocketAddr) -> anyhow::Result<Value> {
    let replicas = Document(service.get("/api/replicas").await?);
    let replica = replicas.get(&format!("address={address}"));
    replica
        .cloned()
        .with_context(|| format!("in {}", replicas.0))
}

/// Waits until a member of a replica's state is `expected`, for example `outstanding` or `availability`.
pub async fn wait_for_replica(
    service: &Service,
    address: SocketAddr,
    member: &str,
    expected: impl Into<Value>,
) -> anyhow::Result<()> {
    let expected = expected.into();
    let condition = format!("{member} of {address} to be {expected}");
    wait_for(WAIT_MAX, &condition, || async {
        let replica = replica(service, address).await?;
        Ok((replica.get(member) == Some(&expected)).then_some(()))
    })
    .await
}

/// Reads a metric: the sum of its series that have all of `labels`; `None` when there is no such series.
pub async fn metric(
    service: &Service,
    name: &str,
    labels: &[(&str, &str)],
) -> anyhow::Result<Option<f64>> {
    let page = service.get("/metrics").await?;
    let page = page.as_str().context("the metrics are not text")?;
    let series = page.lines().filter(|line| {
        let has_label =
            |(label, value): &(&str, &str)| line.contains(&format!("{label}=\"{value}\""));
        line.split(['{', ' ']).next() == Some(name) && labels.iter().all(has_label)
    });
    let values = series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(values.reduce(|sum, value| sum + value))
}

/// Reads a counter like [`metric`]; zero when there is no such series.
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

/// Waits until a metric satisfies `is_expected`.
pub async fn wait_for_metric(
    service: &Service,
    name: &str,
    labels: &[(&str, &str)],
    is_expected: impl Fn(f64) -> bool,
) -> anyhow::Result<()> {
    let condition = format!("the expected value of {name} {labels:?}");
    wait_for(WAIT_MAX, &condition, || async {
        let value = metric(service, name, labels).await?;
        Ok(value.filter(|value| is_expected(*value)).map(drop))
    })
    .await
}
