//! The endpoints of one cluster, in Envoy's format.
//!
//! A draining replica stays listed, as `DRAINING`. Envoy's own load balancing (ring hash, without this service) then avoids
//! it, while `override_host` still sends to it: a request that was decided right before the drain, or that has the
//! replica as a fallback, arrives. Envoy 1.40 behaves so; it also finishes a response from a replica that leaves the list.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;

use envoy_types::pb::envoy::config::core::v3::address::Address as AddressKind;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{Address, HealthStatus, SocketAddress};
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
};
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};
use tonic::Status;
use twox_hash::XxHash3_64;

use crate::pool::{Member, PoolTable};

const CLUSTERS_MAX: usize = 1_000;

/// The encoded endpoints of a cluster, and their version.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Assignment {
    pub(super) any: Any,
    /// Hash of the content, on which all instances of the service agree, also after a restart.
    pub(super) version: String,
}

impl Assignment {
    /// Builds the endpoints of a cluster; a cluster without a pool has none.
    pub(super) fn of(cluster: &str, table: &PoolTable) -> Self {
        let members = table
            .for_cluster(cluster)
            .map(|pool| pool.members().borrow().clone())
            .unwrap_or_default();
        let endpoints = LocalityLbEndpoints {
            // Without this service, Envoy balances over all endpoints; a prefill replica serves no request of its own.
            lb_endpoints: members
                .iter()
                .filter(|member| member.role.has_requests())
                .map(endpoint)
                .collect(),
            ..LocalityLbEndpoints::default()
        };
        let assignment = ClusterLoadAssignment {
            cluster_name: cluster.to_owned(),
            endpoints: vec![endpoints],
            ..ClusterLoadAssignment::default()
        };
        let value = assignment.encode_to_vec();
        Self {
            version: format!("{:016x}", XxHash3_64::oneshot(&value)),
            any: Any {
                type_url: type_url(),
                value,
            },
        }
    }
}

/// The clusters that a stream subscribes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Subscription {
    /// No request yet.
    #[default]
    Empty,
    All,
    Named(BTreeSet<String>),
}

impl Subscription {
    pub(super) fn named(names: BTreeSet<String>) -> Result<Self, Status> {
        if names.len() > CLUSTERS_MAX {
            return Err(Status::resource_exhausted(format!(
                "a stream may follow {CLUSTERS_MAX} clusters; use several streams"
            )));
        }
        Ok(Self::Named(names))
    }

    /// Returns the names of the clusters whose endpoints are known. An empty list for a pool that has not synced would take
    /// all endpoints away from an Envoy that outlived a restart of this service.
    fn clusters(&self, table: &PoolTable) -> Vec<String> {
        let mut names: Vec<String> = match self {
            Self::Empty => Vec::new(),
            Self::All => table.pools().iter().map(|pool| pool.cluster()).collect(),
            Self::Named(names) => names.iter().cloned().collect(),
        };
        names.retain(|name| table.for_cluster(name).is_none_or(|pool| pool.has_synced()));
        names
    }
}

/// The subscription of one stream, and what it was sent.
#[derive(Debug, Default)]
pub(super) struct StreamProgress {
    pub(super) subscription: Subscription,
    /// Version of each cluster that Envoy has.
    pub(super) sent: HashMap<String, String>,
    pub(super) responses: u64,
}

impl StreamProgress {
    /// Returns the number of the last response.
    pub(super) fn nonce(&self) -> String {
        self.responses.to_string()
    }

    /// Returns the clusters that have changed since the last response, and counts a response, if there are any.
    pub(super) fn changes(&mut self, table: &PoolTable) -> Option<Vec<(String, Assignment)>> {
        let mut changed = Vec::new();
        for cluster in self.subscription.clusters(table) {
            let assignment = Assignment::of(&cluster, table);
            if self.sent.get(&cluster) != Some(&assignment.version) {
                let version = assignment.version.clone();
                self.sent.insert(cluster.clone(), version);
                changed.push((cluster, assignment));
            }
        }
        if changed.is_empty() {
            return None;
        }
        self.responses += 1;
        Some(changed)
    }
}

/// Returns the type of the only resource of the service.
pub(super) fn type_url() -> String {
    ClusterLoadAssignment::type_url()
}

fn endpoint(member: &Member) -> LbEndpoint {
    let health = if member.draining {
        HealthStatus::Draining
    } else {
        HealthStatus::Healthy
    };
    LbEndpoint {
        health_status: health.into(),
        host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
            address: Some(address(member.addr)),
            ..Endpoint::default()
        })),
        ..LbEndpoint::default()
    }
}

fn address(addr: SocketAddr) -> Address {
    Address {
        address: Some(AddressKind::SocketAddress(SocketAddress {
            address: addr.ip().to_string(),
            port_specifier: Some(PortSpecifier::PortValue(u32::from(addr.port()))),
            ..SocketAddress::default()
        })),
    }
}
