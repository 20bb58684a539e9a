//! The store of the regions' records: etcd, or Lease objects of Kubernetes.
//!
//! A store has two calls: list all records, and write a record if it still has a given version. The core knows nothing else of
//! the store (`docs/decisions/0150-leases.md`). Each call ends in bounded time, and its result names the time before it was sent.

mod etcd;

use std::sync::Arc;
use std::time::Duration;

use isotherm_regions::{LeaseEffect, RegionEntry, StoreVersion, WriteResult};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::RegionsDriver;
use crate::config::StoreConfig;
use crate::kubernetes::LeaseObjects;
use crate::lease_store::{StoreError, StoredEntries};
use etcd::Etcd;

/// A store of records.
#[derive(Clone, Debug)]
pub(super) enum Store {
    Etcd(Arc<Etcd>),
    Kubernetes(LeaseObjects),
}

impl Store {
    /// Opens the store of a configuration. Must be called inside a tokio runtime.
    /// Fails when its certificates cannot be used.
    pub(super) fn open(config: &StoreConfig) -> anyhow::Result<Self> {
        Ok(match (&config.etcd, &config.kubernetes) {
            (Some(etcd), _) => Self::Etcd(Arc::new(Etcd::open(etcd)?)),
            (None, kubernetes) => {
                let namespace = kubernetes
                    .as_ref()
                    .and_then(|store| store.namespace.clone());
                Self::Kubernetes(LeaseObjects::new(namespace, config.lease))
            }
        })
    }

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

/// Carries out calls until the service stops, and then the calls that wait.
pub(super) async fn run(
    store: Store,
    driver: Arc<RegionsDriver>,
    mut effects: mpsc::UnboundedReceiver<LeaseEffect>,
    wait_max: Duration,
    mut stopping: watch::Receiver<bool>,
) {
    let log = Arc::new(StoreLog::default());
    let mut calls = JoinSet::new();
    loop {
        let is_stopping = *stopping.borrow_and_update();
        if is_stopping && calls.is_empty() && effects.is_empty() {
            return;
        }
        tokio::select! {
            effect = effects.recv() => {
                let Some(effect) = effect else { return };
                let call = call(store.clone(), Arc::clone(&driver), effect, wait_max, Arc::clone(&log));
                calls.spawn(call);
            }
            Some(_) = calls.join_next() => {}
            changed = stopping.changed(), if !is_stopping => if changed.is_err() { return },
        }
    }
}

/// Carries out one call, and hands its result to the core.
async fn call(
    store: Store,
    driver: Arc<RegionsDriver>,
    effect: LeaseEffect,
    wait_max: Duration,
    log: Arc<StoreLog>,
) {
    let sent = driver.clock().now();
    let late = || StoreError(format!("no answer within {} ms", wait_max.as_millis()));
    match effect {
        LeaseEffect::List => {
            let listed = tokio::time::timeout(wait_max, store.list()).await;
            let listed = listed.unwrap_or_else(|_| Err(late()));
            note(&log.lists, listed.as_ref().err(), UNREACHABLE);
            let ignored = listed
                .as_ref()
                .ok()
                .and_then(|found| found.ignored.as_ref());
            note(&log.records, ignored, UNREADABLE);
            driver.on_listed(sent, listed.ok().map(|found| found.entries));
        }
        LeaseEffect::Write(entry, expected) => {
            let write = store.write(&entry, expected.as_ref());
            let written = tokio::time::timeout(wait_max, write).await;
            let written = written.unwrap_or_else(|_| Err(late()));
            note(&log.writes, written.as_ref().err(), UNREACHABLE);
            let result = match written {
                Ok(Some(version)) => WriteResult::Written(version),
                Ok(None) => WriteResult::Conflict,
                Err(_) => WriteResult::Unknown,
            };
            driver.on_written(&entry.region, sent, result);
        }
    }
}

/// The last error of each kind of call. A store may answer lists and refuse writes: one error for all kinds would change, and be
/// logged, with every call.
#[derive(Debug, Default)]
struct StoreLog {
    lists: watch::Sender<Option<StoreError>>,
    writes: watch::Sender<Option<StoreError>>,
    records: watch::Sender<Option<StoreError>>,
}

/// Log messages at the beginning and at the end of an error.
type Messages = (&'static str, &'static str);
const UNREACHABLE: Messages = (
    "the store of leases does not answer: this region keeps its own replicas",
    "the store of leases answers again",
);
const UNREADABLE: Messages = (
    "the store of leases has a record that is ignored",
    "every record of the store of leases is readable",
);

/// Logs an error of the store once, and its end.
fn note(
    last: &watch::Sender<Option<StoreError>>,
    error: Option<&StoreError>,
    (begins, ends): Messages,
) {
    let is_new = last.send_if_modified(|known| {
        let is_new = known.as_ref() != error;
        *known = error.cloned();
        is_new
    });
    match error {
        Some(error) if is_new => tracing::warn!(%error, "{begins}"),
        None if is_new => tracing::info!("{ends}"),
        Some(_) | None => {}
    }
}
