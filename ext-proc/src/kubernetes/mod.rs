//! Kubernetes as a source: the replicas of pools, the siblings of this service, and the records of regions.
//!
//! | module | purpose |
//! | --- | --- |
//! | `replicas` | what a source reports: addresses and the processes behind them |
//! | `view`, `list`, `pods`, `slices` | the core: events of watches in, replicas out; free of clocks and sockets |
//! | `objects` | the fields that the service reads of each object |
//! | `client`, `watch`, `problem` | the connection, a watch with its retries, and why one fails |
//! | `follow` | the task that connects the core to its watches |
//! | `leases` | the records of regions as Lease objects |
//!
//! The service keeps no object of the API server: each event becomes a few bytes at once. Rejected: the reflector and
//! store of `kube`, which keep whole pods, about a hundred times the memory; EndpointSlices for an InferencePool, which
//! needs no Service.

mod replicas;

mod client;
mod follow;
mod leases;
mod list;
mod objects;
mod pods;
mod problem;
mod slices;
#[cfg(test)]
mod tests;
mod view;
mod watch;

use std::sync::Arc;

use tokio::sync::watch::{Receiver, Sender, channel};

use crate::tasks::{AbortOnDrop, vital};

pub(crate) use client::KubernetesClient;
pub(crate) use follow::follow;
pub(crate) use leases::LeaseObjects;
pub(crate) use replicas::{DiscoveredReplica, DiscoveredReplicas};

/// Last report of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceReport {
    /// The last known replicas; `None` until they have arrived as a whole.
    pub(crate) replicas: Option<Arc<DiscoveredReplicas>>,
    /// Why the source cannot be followed now.
    pub(crate) problem: Option<Arc<str>>,
}

/// A task that follows objects of the API server until this is dropped.
#[derive(Debug)]
pub(crate) struct Follower {
    /// The last report of the task; the default before the first.
    pub(crate) reports: Receiver<SourceReport>,
    _task: AbortOnDrop,
}

impl Follower {
    fn spawn<F>(follow: impl FnOnce(Sender<SourceReport>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, reports) = channel(SourceReport::default());
        let task = tokio::spawn(vital("Kubernetes source", follow(sender)));
        Self {
            reports,
            _task: AbortOnDrop(task.abort_handle()),
        }
    }
}
