//! State-of-the-world EDS: each request names all clusters that Envoy subscribes to, and each response has the clusters that
//! changed. (For endpoints, unlike for clusters and listeners, a response need not be complete.)

use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use tonic::Status;

use super::assignment::{StreamProgress, Subscription, type_url};
use super::stream::StreamState;
use crate::pool::PoolTable;

#[derive(Debug, Default)]
pub(super) struct SotwState(StreamProgress);

impl StreamState for SotwState {
    type Request = DiscoveryRequest;
    type Response = DiscoveryResponse;

    fn handle(&mut self, request: Self::Request) -> Result<Option<String>, Status> {
        let is_first = self.0.responses == 0;
        if !is_first && request.response_nonce != self.0.nonce() {
            // Envoy wrote the request before it read the last response.
            return Ok(None);
        }
        self.0.subscription = match request.resource_names {
            names if names.is_empty() => Subscription::All,
            names => Subscription::named(names.into_iter().collect())?,
        };
        if let Subscription::Named(names) = &self.0.subscription {
            // A cluster that leaves the subscription is sent again when it returns.
            self.0.sent.retain(|name, _| names.contains(name));
        }
        Ok(request.error_detail.map(|error| error.message))
    }

    fn changes(&mut self, table: &PoolTable) -> Option<Self::Response> {
        let changed = self.0.changes(table)?.into_iter();
        Some(DiscoveryResponse {
            version_info: self.0.nonce(),
            resources: changed.map(|(_, assignment)| assignment.any).collect(),
            type_url: type_url(),
            nonce: self.0.nonce(),
            ..DiscoveryResponse::default()
        })
    }
}
