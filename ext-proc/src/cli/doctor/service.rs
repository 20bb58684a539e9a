//! The answers of the service's admin interface: its pools, its replicas, and the decision streams that are open.

use crate::admin::view::{PoolView, ReplicaView};
use crate::cli::client::{AdminClient, Unreachable};
use crate::config::Address;

use super::fault::Fault;

/// The metric of the open decision streams.
const DECISION_STREAMS: &str = "isotherm_decision_streams ";

/// The answers of a service.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceState {
    pub(super) pools: Vec<PoolView>,
    pub(super) replicas: Vec<ReplicaView>,
    /// Open decision streams; `None` where the metric cannot be read.
    pub(super) decision_streams: Option<u64>,
}

impl ServiceState {
    /// The addresses of the replicas, each once.
    pub(super) fn addresses(&self) -> Vec<Address> {
        let replicas = self.replicas.iter();
        let mut addresses: Vec<Address> = replicas
            .filter_map(|replica| Address::parse(&replica.address).ok())
            .collect();
        addresses.sort();
        addresses.dedup();
        addresses
    }
}

/// Asks a service for everything that the rules read.
pub(super) async fn ask(client: &AdminClient) -> Result<ServiceState, Fault> {
    let state = async {
        anyhow::Ok(ServiceState {
            pools: client.get("/api/pools").await?,
            replicas: client.get("/api/replicas").await?,
            decision_streams: decision_streams(&client.text("/metrics").await?),
        })
    };
    state.await.map_err(|error| {
        let address = client.address();
        if !error.is::<Unreachable>() {
            let remedy = "correct the address (`admin.listen` of the service) or the token: --admin, --config, --token-file";
            return Fault::error("no-service", format!("{error:#}"), remedy);
        }
        let reason = error.root_cause();
        Fault::error(
            "no-service",
            format!("the service's admin interface does not answer at {address}: {reason}"),
            "start `isotherm serve`, or name its `admin.listen` by --admin or --config",
        )
    })
}

fn decision_streams(metrics: &str) -> Option<u64> {
    let mut lines = metrics.lines();
    lines.find_map(|line| line.strip_prefix(DECISION_STREAMS)?.trim().parse().ok())
}
