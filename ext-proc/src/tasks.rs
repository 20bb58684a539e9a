//! Tasks that follow a changing set of things: one for each, started when it comes, stopped when it goes.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Weak};

use tokio::task::{AbortHandle, JoinHandle};

use crate::pool::{Pool, PoolRegistry};

/// One task for each key. Dropping the set stops them all.
#[derive(Debug)]
pub(crate) struct KeyedTasks<K>(BTreeMap<K, Running>);

#[derive(Debug)]
struct Running(AbortHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<K: Ord> KeyedTasks<K> {
    pub(crate) fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Stops the tasks whose key is not wanted any more.
    pub(crate) fn keep(&mut self, mut wanted: impl FnMut(&K) -> bool) {
        self.0.retain(|key, _| wanted(key));
    }

    /// Starts a task for `key`, unless it has one.
    pub(crate) fn ensure(&mut self, key: K, start: impl FnOnce() -> JoinHandle<()>) {
        self.0
            .entry(key)
            .or_insert_with(|| Running(start().abort_handle()));
    }
}

/// Runs `work` for each pool of `pool_registry`, through reloads, until the registry is gone or the task is aborted.
pub(crate) fn for_each_pool<W: Future<Output = ()> + Send + 'static>(
    pool_registry: &PoolRegistry,
    work: impl Fn(Weak<Pool>) -> W + Send + 'static,
) -> JoinHandle<()> {
    let mut table = pool_registry.watch();
    tokio::spawn(async move {
        let mut tasks = KeyedTasks::new();
        loop {
            let current = Arc::clone(&table.borrow_and_update());
            let pools = || current.pools().iter().map(Identity::of);
            tasks.keep(|known| pools().any(|pool| pool == *known));
            for pool in pools() {
                let work = || tokio::spawn(work(pool.0.clone()));
                tasks.ensure(pool.clone(), work);
            }
            drop(current);
            if table.changed().await.is_err() {
                return;
            }
        }
    })
}

/// Which pool, told from a later one of the same name by where it lies in memory; the weak reference keeps that
/// place from being used again.
#[derive(Clone, Debug)]
struct Identity(Weak<Pool>);

impl Identity {
    fn of(pool: &Arc<Pool>) -> Self {
        Self(Arc::downgrade(pool))
    }
}

impl Ord for Identity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.as_ptr().cmp(&other.0.as_ptr())
    }
}

impl PartialOrd for Identity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Identity {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_key_has_one_task_and_it_ends_with_the_key() {
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
