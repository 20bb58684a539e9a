//! How many stacks run at once.
//!
//! The test runner starts as many tests as the machine has cores. A stack is four programs and a load, so that would be
//! too many, and `--test-threads` is something that a person forgets. So each test takes a turn first.

use tokio::sync::{Semaphore, SemaphorePermit};

/// As many ordinary tests run at the same time.
const TURNS: u32 = 2;

static STACKS: Semaphore = Semaphore::const_new(TURNS as usize);

/// A turn; over when it is dropped.
pub type Turn = SemaphorePermit<'static>;

/// Waits for a turn beside others.
///
/// # Errors
/// Never, since the semaphore stays open.
pub async fn shared() -> anyhow::Result<Turn> {
    Ok(STACKS.acquire().await?)
}

/// Waits until the machine is this test's alone.
///
/// # Errors
/// Never, since the semaphore stays open.
pub async fn exclusive() -> anyhow::Result<Turn> {
    Ok(STACKS.acquire_many(TURNS).await?)
}
