//! Incremental EDS: requests add and remove clusters, responses bring the clusters that changed, each with its
//! version, which an Envoy that comes back tells so that it is not sent again what it has.

use std::collections::{BTreeSet, HashMap};

use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource,
};
use tonic::Status;

use super::assignment::{Assignment, Wanted, too_many, type_url};
use super::stream::{Heard, Session};
use crate::pool::PoolTable;

/// The name by which a stream asks for everything.
const WILDCARD: &str = "*";

/// What one stream has asked for and been sent.
#[derive(Debug, Default)]
pub(super) struct DeltaSession {
    wanted: Wanted,
    /// The version of each cluster that Envoy has.
    sent: HashMap<String, String>,
    responses: u64,
}

impl Session for DeltaSession {
    type Request = DeltaDiscoveryRequest;
    type Response = DeltaDiscoveryResponse;

    fn hear(&mut self, request: Self::Request) -> Result<Heard, Status> {
        let first = self.wanted == Wanted::Nothing;
        for name in &request.resource_names_subscribe {
            // Asking again means that Envoy has dropped it.
            self.sent.remove(name);
        }
        if first {
            self.sent.extend(request.initial_resource_versions);
        }
        for name in &request.resource_names_unsubscribe {
            self.sent.remove(name);
        }
        let subscribed = request.resource_names_subscribe;
        let all =
            subscribed.iter().any(|name| name == WILDCARD) || (first && subscribed.is_empty());
        let before = std::mem::take(&mut self.wanted);
        self.wanted = match before {
            _ if all => Wanted::All,
            Wanted::All => Wanted::All,
            Wanted::Nothing => {
                Wanted::named(subscribed.into_iter().collect()).ok_or_else(too_many)?
            }
            Wanted::Named(mut names) => {
                names.extend(subscribed);
                let gone: BTreeSet<_> = request.resource_names_unsubscribe.into_iter().collect();
                names.retain(|name| !gone.contains(name));
                Wanted::named(names).ok_or_else(too_many)?
            }
        };
        Ok(match request.error_detail {
            Some(error) => Heard::Refused(error.message),
            None => Heard::Nothing,
        })
    }

    fn changes(&mut self, table: &PoolTable) -> Option<Self::Response> {
        let mut resources = Vec::new();
        for cluster in self.wanted.clusters(table) {
            let assignment = Assignment::of(&cluster, table);
            if self.sent.get(&cluster) != Some(&assignment.version) {
                self.sent
                    .insert(cluster.clone(), assignment.version.clone());
                resources.push(Resource {
                    name: cluster,
                    version: assignment.version,
                    resource: Some(assignment.any),
                    ..Resource::default()
                });
            }
        }
        if resources.is_empty() {
            return None;
        }
        self.responses += 1;
        let nonce = self.responses.to_string();
        Some(DeltaDiscoveryResponse {
            system_version_info: nonce.clone(),
            resources,
            type_url: type_url(),
            nonce,
            ..DeltaDiscoveryResponse::default()
        })
    }
}
