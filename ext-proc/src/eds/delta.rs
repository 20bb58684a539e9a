//! Incremental EDS: requests add and remove clusters, and responses have the clusters that changed, each with its version. An
//! Envoy that reconnects sends the versions that it has, and gets only the clusters that differ.

use std::collections::{BTreeSet, HashMap};

use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource,
};
use tonic::Status;

use super::assignment::{Assignment, Subscription, too_many, type_url};
use super::stream::StreamState;
use crate::pool::PoolTable;

/// Name that subscribes to all clusters.
const WILDCARD: &str = "*";

/// The subscription of one stream, and what it was sent.
#[derive(Debug, Default)]
pub(super) struct DeltaState {
    subscription: Subscription,
    /// Version of each cluster that Envoy has.
    sent: HashMap<String, String>,
    responses: u64,
}

impl StreamState for DeltaState {
    type Request = DeltaDiscoveryRequest;
    type Response = DeltaDiscoveryResponse;

    fn handle(&mut self, request: Self::Request) -> Result<Option<String>, Status> {
        let first = self.subscription == Subscription::Empty;
        for name in &request.resource_names_subscribe {
            // A repeated subscription means that Envoy has dropped the cluster.
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
        let before = std::mem::take(&mut self.subscription);
        self.subscription = match before {
            _ if all => Subscription::All,
            Subscription::All => Subscription::All,
            Subscription::Empty => {
                Subscription::named(subscribed.into_iter().collect()).ok_or_else(too_many)?
            }
            Subscription::Named(mut names) => {
                names.extend(subscribed);
                let gone: BTreeSet<_> = request.resource_names_unsubscribe.into_iter().collect();
                names.retain(|name| !gone.contains(name));
                Subscription::named(names).ok_or_else(too_many)?
            }
        };
        Ok(request.error_detail.map(|error| error.message))
    }

    fn changes(&mut self, table: &PoolTable) -> Option<Self::Response> {
        let mut resources = Vec::new();
        for cluster in self.subscription.clusters(table) {
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
