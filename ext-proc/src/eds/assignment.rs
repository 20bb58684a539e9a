//! The endpoints of one cluster, as Envoy wants them.
//!
//! A draining replica stays listed, as `DRAINING`. Envoy's own choices (ring hash, when this service is away) then
//! avoid it, while `override_host` still sends to it: a request that was decided just before the drain, or that has it
//! as a fallback, arrives. Seen with Envoy 1.40, as was that a response in flight ends well even on a replica that is
//! taken off the list.

use std::collections::BTreeSet;
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
use twox_hash::XxHash3_64;

use crate::pool::{Member, PoolTable};

/// The most clusters that one stream may follow.
const CLUSTERS_MAX: usize = 1_000;

/// One cluster's endpoints, encoded, and their version.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Assignment {
    pub(super) any: Any,
    /// A hash of the content: two instances of the service, and one before and after a restart, agree on it.
    pub(super) version: String,
}

impl Assignment {
    /// The endpoints of a cluster; none for one that no pool stands behind.
    pub(super) fn of(cluster: &str, table: &PoolTable) -> Self {
        let members = table
            .for_cluster(cluster)
            .map(|pool| pool.members().borrow().clone())
            .unwrap_or_default();
        let endpoints = LocalityLbEndpoints {
            lb_endpoints: members.iter().map(endpoint).collect(),
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

/// The clusters that a stream follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Nothing was asked for yet.
    #[default]
    Nothing,
    /// All that have a pool.
    All,
    /// These.
    Named(BTreeSet<String>),
}

impl Wanted {
    /// The clusters with these names; `None` when they are more than a stream may follow.
    pub(super) fn named(names: BTreeSet<String>) -> Option<Self> {
        (names.len() <= CLUSTERS_MAX).then_some(Self::Named(names))
    }

    /// The names of those of which something can be said: while a pool's sources have not told who is in it, "nobody"
    /// would take from an Envoy that outlived a restart of this service every endpoint that it has.
    pub(super) fn clusters(&self, table: &PoolTable) -> Vec<String> {
        let mut names: Vec<String> = match self {
            Self::Nothing => Vec::new(),
            Self::All => table.pools().iter().map(|pool| pool.cluster()).collect(),
            Self::Named(names) => names.iter().cloned().collect(),
        };
        names.retain(|name| table.for_cluster(name).is_none_or(|pool| pool.has_synced()));
        names
    }
}

/// Why a stream was ended that asked for too much.
pub(super) fn too_many() -> tonic::Status {
    tonic::Status::resource_exhausted(format!(
        "a stream may follow {CLUSTERS_MAX} clusters; use several streams"
    ))
}

/// The type of the only resource that is served here.
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
