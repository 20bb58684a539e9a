//! Bounded waiting for something to become true.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::bail;

/// How often a condition is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Asks until the answer is something; after `limit` the error names what was waited for.
///
/// # Errors
/// The first error of `ask`, or that the limit has passed.
pub async fn within<T, F, A>(limit: Duration, what: &str, mut ask: A) -> anyhow::Result<T>
where
    A: FnMut() -> F,
    F: Future<Output = anyhow::Result<Option<T>>>,
{
    let start = Instant::now();
    loop {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        if start.elapsed() > limit {
            bail!("waited {} s for {what}", limit.as_secs_f64());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Asks until the answer is yes; for what cannot go wrong, only take long.
///
/// # Errors
/// When the limit has passed.
pub async fn until<F, A>(limit: Duration, what: &str, mut ask: A) -> anyhow::Result<()>
where
    A: FnMut() -> F,
    F: Future<Output = bool>,
{
    within(limit, what, || {
        let asked = ask();
        async move { Ok(asked.await.then_some(())) }
    })
    .await
}
