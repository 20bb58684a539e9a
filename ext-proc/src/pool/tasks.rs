//! Tasks that follow the pools of a registry.

use std::sync::{Arc, Weak};

use tokio::task::JoinHandle;

use super::{Pool, PoolRegistry, history, sources};
use crate::kubernetes::KubernetesClient;
use crate::tasks::{AbortOnDrop, vital};

/// Keeps the replicas of every pool in step with their sources, through reloads, until the task is aborted.
pub fn follow_sources(pool_registry: &PoolRegistry) -> JoinHandle<()> {
    let client = KubernetesClient::default();
    for_each_pool(pool_registry, "sources", move |pool| {
        sources::follow(pool, client.clone())
    })
}

/// Keeps the history of every pool, through reloads, until the task is aborted.
pub(crate) fn keep_histories(pool_registry: &PoolRegistry) -> JoinHandle<()> {
    for_each_pool(pool_registry, "history", history::keep)
}

/// Runs `work` with this name for each pool, through reloads, until the registry is gone or the task is aborted.
pub(crate) fn for_each_pool<W: Future<Output = ()> + Send + 'static>(
    pool_registry: &PoolRegistry,
    name: &'static str,
    work: impl Fn(Weak<Pool>) -> W + Send + 'static,
) -> JoinHandle<()> {
    let mut table = pool_registry.watch();
    tokio::spawn(vital("pools", async move {
        // The weak references keep the address of a pool from being used again while its task runs.
        let mut tasks: Vec<(Weak<Pool>, AbortOnDrop)> = Vec::new();
        loop {
            let current = Arc::clone(&table.borrow_and_update());
            let pools = || current.pools().iter().map(Arc::downgrade);
            tasks.retain(|(known, _)| pools().any(|pool| pool.ptr_eq(known)));
            for pool in pools() {
                if !tasks.iter().any(|(known, _)| known.ptr_eq(&pool)) {
                    let task = tokio::spawn(vital(name, work(pool.clone())));
                    tasks.push((pool, AbortOnDrop(task.abort_handle())));
                }
            }
            drop(current);
            if table.changed().await.is_err() {
                return;
            }
        }
    }))
}
