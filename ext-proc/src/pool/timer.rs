//! Makes a pool's time pass: one task per pool follows the core's next timeout.

use std::sync::{Arc, Weak};

use tokio::time::{Instant, sleep_until};

use super::Pool;

/// Starts the task. It ends when the pool is gone; it does not keep the pool.
pub(crate) fn spawn(pool: &Arc<Pool>) {
    let alarm = pool.alarm();
    let pool = Arc::downgrade(pool);
    tokio::spawn(async move {
        while let Some(deadline) = next(&pool) {
            let timeout = async {
                match deadline {
                    Some(instant) => sleep_until(instant).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = timeout => if let Some(pool) = pool.upgrade() { pool.tick() },
                () = alarm.notified() => {}
            }
        }
    });
}

/// `None` when the pool is gone; `Some(None)` when nothing is due.
fn next(pool: &Weak<Pool>) -> Option<Option<Instant>> {
    let pool = pool.upgrade()?;
    let due = pool.deadline();
    Some(
        due.and_then(|time| pool.clock().instant_of(time))
            .map(Instant::from_std),
    )
}
