//! State-of-the-world EDS: each request names all clusters that Envoy subscribes to, and each response has the clusters that
//! changed. (For endpoints, unlike for clusters and listeners, a response need not be complete.)

use std::collections::HashMap;

use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use tonic::Status;

use super::assignment::{Assignment, Subscription, too_many, type_url};
use super::stream::StreamState;
use crate::pool::PoolTable;

/// The subscription of one stream, and what it was sent.
#[derive(Debug, Default)]
pub(super) struct SotwState {
    subscription: Subscription,
    /// Version of each cluster that was sent last.
    sent: HashMap<String, String>,
    responses: u64,
}

impl SotwState {
    /// Answers a single request outside of a stream.
    pub(super) fn fetch(
        request: &DiscoveryRequest,
        table: &PoolTable,
    ) -> Result<DiscoveryResponse, Status> {
        let mut state = Self::default();
        state.subscribe(&request.resource_names)?;
        Ok(state.changes(table).unwrap_or_default())
    }

    fn subscribe(&mut self, names: &[String]) -> Result<(), Status> {
        self.subscription = match names {
            [] => Subscription::All,
            names => Subscription::named(names.iter().cloned().collect()).ok_or_else(too_many)?,
        };
        Ok(())
    }

    fn nonce(&self) -> String {
        self.responses.to_string()
    }
}

impl StreamState for SotwState {
    type Request = DiscoveryRequest;
    type Response = DiscoveryResponse;

    fn handle(&mut self, request: Self::Request) -> Result<Option<String>, Status> {
        let first = self.responses == 0;
        if !first && request.response_nonce != self.nonce() {
            // Envoy wrote the request before it read the last response.
            return Ok(None);
        }
        self.subscribe(&request.resource_names)?;
        if let Subscription::Named(names) = &self.subscription {
            // A cluster that leaves the subscription is sent again when it returns.
            self.sent.retain(|name, _| names.contains(name));
        }
        Ok(request.error_detail.map(|error| error.message))
    }

    fn changes(&mut self, table: &PoolTable) -> Option<Self::Response> {
        let mut resources = Vec::new();
        for cluster in self.subscription.clusters(table) {
            let assignment = Assignment::of(&cluster, table);
            if self.sent.get(&cluster) != Some(&assignment.version) {
                self.sent.insert(cluster, assignment.version);
                resources.push(assignment.any);
            }
        }
        if resources.is_empty() {
            return None;
        }
        self.responses += 1;
        Some(DiscoveryResponse {
            version_info: self.nonce(),
            resources,
            type_url: type_url(),
            nonce: self.nonce(),
            ..DiscoveryResponse::default()
        })
    }
}
