//! Incremental EDS: requests add and remove clusters, and responses have the clusters that changed, each with its version. An
//! Envoy that reconnects sends the versions that it has, and gets only the clusters that differ.

use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource,
};
use tonic::Status;

use super::assignment::{StreamProgress, Subscription, type_url};
use super::stream::StreamState;
use crate::pool::PoolTable;

/// Name that subscribes to all clusters.
const WILDCARD: &str = "*";

#[derive(Debug, Default)]
pub(super) struct DeltaState(StreamProgress);

impl StreamState for DeltaState {
    type Request = DeltaDiscoveryRequest;
    type Response = DeltaDiscoveryResponse;

    fn handle(&mut self, request: Self::Request) -> Result<Option<String>, Status> {
        let StreamProgress {
            subscription, sent, ..
        } = &mut self.0;
        let is_first = *subscription == Subscription::Empty;
        let subscribed = request.resource_names_subscribe;
        for name in &subscribed {
            // A repeated subscription means that Envoy has dropped the cluster.
            sent.remove(name);
        }
        if is_first {
            sent.extend(request.initial_resource_versions);
        }
        for name in &request.resource_names_unsubscribe {
            sent.remove(name);
        }
        let is_wildcard = subscribed.iter().any(|name| name == WILDCARD);
        *subscription = match std::mem::take(subscription) {
            _ if is_wildcard || (is_first && subscribed.is_empty()) => Subscription::All,
            Subscription::All => Subscription::All,
            Subscription::Empty => Subscription::named(subscribed.into_iter().collect())?,
            Subscription::Named(mut names) => {
                names.extend(subscribed);
                for name in &request.resource_names_unsubscribe {
                    names.remove(name);
                }
                Subscription::named(names)?
            }
        };
        Ok(request.error_detail.map(|error| error.message))
    }

    fn changes(&mut self, table: &PoolTable) -> Option<Self::Response> {
        let changed = self.0.changes(table)?.into_iter();
        let resources = changed.map(|(name, assignment)| Resource {
            name,
            version: assignment.version,
            resource: Some(assignment.any),
            ..Resource::default()
        });
        Some(DeltaDiscoveryResponse {
            system_version_info: self.0.nonce(),
            resources: resources.collect(),
            type_url: type_url(),
            nonce: self.0.nonce(),
            ..DeltaDiscoveryResponse::default()
        })
    }
}
