//! Permits that bound how many stacks run at once.
//!
//! The test runner starts as many tests as the machine has cores, or as many as `cargo xtask test` says. A stack is four
//! programs and a load, so many stacks at once delay each other. A permit in each test bounds them.

use tokio::sync::{Semaphore, SemaphorePermit};

/// The programs of a stack wait most of the time: three stacks use two processors well.
const STACKS_MAX: u32 = 3;

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
