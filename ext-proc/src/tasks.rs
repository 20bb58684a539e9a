//! Tasks that serving needs, and tasks for a changing set of keys.
//!
//! The service waits for the end of few tasks, so a task that panics would be missing for ever while the process looks healthy. A panic in
//! a task that serving needs therefore ends the process: Envoys go on by ring hash, and a supervisor starts the service again.
//! Rejected: to start the task again, since what it shares with others may be half changed.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::thread::panicking;

use futures_util::FutureExt as _;
use tokio::task::{AbortHandle, JoinHandle};

use crate::log;

/// Ends the process when a panic drops it; the name is of what panicked.
pub(crate) struct AbortOnPanic(pub(crate) &'static str);

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if panicking() {
            abort(self.0);
        }
    }
}

fn abort(name: &'static str) -> ! {
    tracing::error!(
        task = name,
        "a part of the service panicked and may be half changed; the service ends"
    );
    log::finish();
    std::process::abort();
}

/// Runs a task that serving needs: a panic in it ends the process.
pub(crate) async fn vital<T>(name: &'static str, task: impl Future<Output = T>) -> T {
    #[cfg(test)]
    let task = vital_tests::panic_if_chosen(name, task);
    let ended = AssertUnwindSafe(task).catch_unwind().await;
    ended.unwrap_or_else(|_| abort(name))
}

/// A task for each key. Dropping the set aborts all tasks.
#[derive(Debug)]
pub(crate) struct KeyedTasks<K>(BTreeMap<K, AbortOnDrop>);

#[derive(Debug)]
pub(crate) struct AbortOnDrop(pub(crate) AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<K: Ord> KeyedTasks<K> {
    pub(crate) fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Aborts the tasks of keys that are not wanted any more.
    pub(crate) fn keep(&mut self, mut is_wanted: impl FnMut(&K) -> bool) {
        self.0.retain(|key, _| is_wanted(key));
    }

    /// Starts a task for `key`, unless it has one.
    pub(crate) fn ensure(&mut self, key: K, start: impl FnOnce() -> JoinHandle<()>) {
        self.0
            .entry(key)
            .or_insert_with(|| AbortOnDrop(start().abort_handle()));
    }
}

#[cfg(test)]
mod vital_tests;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn each_key_has_one_task_which_ends_with_the_key() {
        let started = Arc::new(AtomicUsize::new(0));
        let alive = Arc::new(());
        let mut tasks = KeyedTasks::new();
        let start = || {
            started.fetch_add(1, Ordering::SeqCst);
            let alive = Arc::clone(&alive);
            tokio::spawn(async move {
                let _alive = alive;
                std::future::pending::<()>().await;
            })
        };
        for key in [1, 2, 1] {
            tasks.ensure(key, start);
        }
        assert_eq!(started.load(Ordering::SeqCst), 2);
        tasks.keep(|key| *key == 2);
        while Arc::strong_count(&alive) != 2 {
            tokio::task::yield_now().await;
        }
        drop(tasks);
        while Arc::strong_count(&alive) != 1 {
            tokio::task::yield_now().await;
        }
    }
}
