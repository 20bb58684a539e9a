//! Waiting for a condition, with a bound.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::bail;

/// Bound on a wait for a state that is expected soon. Only a failed test takes this long; a machine whose cores are busy does
/// not.
pub const WAIT_MAX: Duration = Duration::from_secs(180);

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Calls `check` until it returns a value; after `limit`, fails with an error that names the condition.
pub async fn wait_for<T, F, C>(limit: Duration, condition: &str, mut check: C) -> anyhow::Result<T>
where
    C: FnMut() -> F,
    F: Future<Output = anyhow::Result<Option<T>>>,
{
    let start = Instant::now();
    loop {
        if let Some(value) = check().await? {
            return Ok(value);
        }
        if start.elapsed() > limit {
            bail!("waited {} s for {condition}", limit.as_secs_f64());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Calls `check` until it returns true.
pub async fn wait_until<F, C>(limit: Duration, condition: &str, mut check: C) -> anyhow::Result<()>
where
    C: FnMut() -> F,
    F: Future<Output = bool>,
{
    wait_for(limit, condition, || {
        let checked = check();
        async move { Ok(checked.await.then_some(())) }
    })
    .await
}
