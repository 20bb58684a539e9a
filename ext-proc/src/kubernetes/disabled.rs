//! A build without Kubernetes: no source reports anything. The configuration refuses such a source.

use std::time::Duration;

use isotherm_regions::{RegionEntry, StoreVersion};
use tokio::sync::watch;

use super::Follower;
use crate::config::KubernetesSource;
use crate::lease_store::{StoreError, StoredEntries};

/// The place of the connection to the API server.
#[derive(Clone, Debug, Default)]
pub(crate) struct KubernetesClient(());

/// Reports nothing.
pub(crate) fn follow(
    _: &KubernetesClient,
    _: KubernetesSource,
    _: &'static str,
    _: Option<&str>,
) -> Follower {
    Follower::spawn(keep)
}

/// The place of the Lease objects.
#[derive(Clone, Debug)]
pub(crate) struct LeaseObjects;

impl LeaseObjects {
    pub(crate) fn new(_: Option<String>, _: Duration) -> Self {
        Self
    }

    pub(crate) async fn list(&self) -> Result<StoredEntries, StoreError> {
        Err(StoreError("this build has no Kubernetes".to_owned()))
    }

    pub(crate) async fn write(
        &self,
        _: &RegionEntry,
        _: Option<&StoreVersion>,
    ) -> Result<Option<StoreVersion>, StoreError> {
        Err(StoreError("this build has no Kubernetes".to_owned()))
    }
}

/// Keeps the sending end of a channel, so that the receiver sees neither a value nor an end.
async fn keep<T>(_sender: watch::Sender<T>) {
    std::future::pending().await
}
