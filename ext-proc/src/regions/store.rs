//! The store of the regions' records: etcd, or Lease objects of Kubernetes.
//!
//! A store has two calls: list all records, and write a record if it still has a given version. The core knows nothing else of
//! the store (`docs/decisions/0150-leases.md`). Each call ends in bounded time, and its result names the time before it was sent.

mod etcd;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use isotherm_regions::{LeaseEffect, RegionEntry, StoreVersion, StoredEntry, WriteResult};
use isotherm_router::Time;
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use super::RegionsDriver;
use crate::config::StoreConfig;
use crate::kubernetes::LeaseObjects;
use crate::lease_store::{StoreError, StoredEntries};
use crate::tasks::vital;
use etcd::Etcd;

/// A store of records.
#[derive(Debug)]
enum Store {
    Etcd(Box<Etcd>),
    Kubernetes(LeaseObjects),
}

impl Store {
    async fn list(&self) -> Result<StoredEntries, StoreError> {
        match self {
            Self::Etcd(store) => store.list().await,
            Self::Kubernetes(store) => store.list().await,
        }
    }

    /// Writes a record if it still has the version; `None` if there is none. Returns the new version, or `None` when the record
    /// has changed.
    async fn write(
        &self,
        entry: &RegionEntry,
        expected: Option<&StoreVersion>,
    ) -> Result<Option<StoreVersion>, StoreError> {
        match self {
            Self::Etcd(store) => store.write(entry, expected).await,
            Self::Kubernetes(store) => store.write(entry, expected).await,
        }
    }
}

/// Problems with a store that leave a region its own replicas only.
const NO_LISTS: &str = "does not answer lists, so this region keeps its own replicas";
const NO_WRITES: &str = "does not answer writes, so this region keeps its own replicas";

/// The calls of a store.
#[derive(Debug)]
pub(super) struct StoreCalls {
    store: Store,
    /// Longest wait for an answer.
    wait_max: Duration,
    running: TaskTracker,
    /// The problems that last. A store may answer lists and refuse writes.
    problems: Mutex<BTreeSet<&'static str>>,
}

impl StoreCalls {
    /// Opens the store of a configuration. Must be called inside a tokio runtime.
    /// Fails when its certificates cannot be used.
    pub(super) fn open(config: &StoreConfig, wait_max: Duration) -> anyhow::Result<Self> {
        let store = match &config.kubernetes {
            Some(namespace) => {
                Store::Kubernetes(LeaseObjects::new(namespace.clone(), config.lease))
            }
            None => Store::Etcd(Box::new(Etcd::open(config, wait_max)?)),
        };
        Ok(Self {
            store,
            wait_max,
            running: TaskTracker::new(),
            problems: Mutex::default(),
        })
    }

    /// Starts a call, whose result goes to the core.
    pub(super) fn start(
        self: Arc<Self>,
        driver: Weak<RegionsDriver>,
        sent: Time,
        effect: LeaseEffect,
    ) {
        let running = self.running.clone();
        let call = async move {
            match effect {
                LeaseEffect::List => {
                    let listed = self.list().await;
                    driver.upgrade()?.on_listed(sent, listed);
                }
                LeaseEffect::Write(entry, expected) => {
                    let result = self.write(&entry, expected.as_ref()).await;
                    driver.upgrade()?.on_written(&entry.region, sent, result);
                }
            }
            Some(())
        };
        running.spawn(vital("lease store", call));
    }

    /// Waits until all calls have ended.
    pub(super) async fn ended(&self) {
        self.running.close();
        self.running.wait().await;
    }

    async fn list(&self) -> Option<Vec<StoredEntry>> {
        let listed = self.in_time(self.store.list()).await;
        self.note(NO_LISTS, listed.as_ref().err());
        let found = listed.ok()?;
        self.note("has a record that is ignored", found.ignored.as_ref());
        Some(found.entries)
    }

    async fn write(&self, entry: &RegionEntry, expected: Option<&StoreVersion>) -> WriteResult {
        let written = self.in_time(self.store.write(entry, expected)).await;
        self.note(NO_WRITES, written.as_ref().err());
        match written {
            Ok(Some(version)) => WriteResult::Written(version),
            Ok(None) => WriteResult::Conflict,
            Err(_) => WriteResult::Unknown,
        }
    }

    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let late_ms = self.wait_max.as_millis();
        let answer = tokio::time::timeout(self.wait_max, call).await;
        answer.unwrap_or_else(|_| Err(StoreError(format!("no answer within {late_ms} ms"))))
    }

    /// Logs the beginning of a problem with the store, and its end.
    fn note(&self, problem: &'static str, error: Option<&StoreError>) {
        let mut problems = self.problems.lock();
        if let Some(error) = error {
            if problems.insert(problem) {
                tracing::warn!(%error, "the store of leases {problem}");
            }
        } else if problems.remove(problem) {
            tracing::info!("no longer: the store of leases {problem}");
        }
    }
}
