//! Permits that bound how many stacks run at once.
//!
//! The test runner starts as many tests as the machine has cores. A stack is four programs and a load, so that would be
//! too many. A permit in each test bounds them without a flag such as `--test-threads`.

use tokio::sync::{Semaphore, SemaphorePermit};

const STACKS_MAX: u32 = 2;

static STACKS: Semaphore = Semaphore::const_new(STACKS_MAX as usize);

/// A permit; it ends when it is dropped.
pub type Permit = SemaphorePermit<'static>;

/// Waits for a permit beside other tests.
pub async fn shared() -> anyhow::Result<Permit> {
    Ok(STACKS.acquire().await?)
}

/// Waits until no other test of this program runs.
pub async fn exclusive() -> anyhow::Result<Permit> {
    Ok(STACKS.acquire_many(STACKS_MAX).await?)
}
