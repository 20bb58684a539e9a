//! State-of-the-world EDS: each request names all clusters that Envoy wants; each response brings the clusters that
//! changed (for endpoints, unlike for clusters and listeners, a response need not be complete).

use std::collections::HashMap;

use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use tonic::Status;

use super::assignment::{Assignment, Wanted, too_many, type_url};
use super::stream::{Heard, Session};
use crate::pool::PoolTable;

/// What one stream has asked for and been sent.
#[derive(Debug, Default)]
pub(super) struct SotwSession {
    wanted: Wanted,
    /// The version of each cluster that was sent last.
    sent: HashMap<String, String>,
    responses: u64,
}

impl SotwSession {
    /// The answer to a single request, outside of any stream.
    pub(super) fn fetch(
        request: &DiscoveryRequest,
        table: &PoolTable,
    ) -> Result<DiscoveryResponse, Status> {
        let mut session = Self::default();
        session.want(&request.resource_names)?;
        Ok(session.changes(table).unwrap_or_default())
    }

    fn want(&mut self, names: &[String]) -> Result<(), Status> {
        self.wanted = match names {
            [] => Wanted::All,
            names => Wanted::named(names.iter().cloned().collect()).ok_or_else(too_many)?,
        };
        Ok(())
    }

    fn nonce(&self) -> String {
        self.responses.to_string()
    }
}

impl Session for SotwSession {
    type Request = DiscoveryRequest;
    type Response = DiscoveryResponse;

    fn hear(&mut self, request: Self::Request) -> Result<Heard, Status> {
        let first = self.responses == 0;
        if !first && request.response_nonce != self.nonce() {
            // Written before our last response was read; its answer to that one is on its way.
            return Ok(Heard::Nothing);
        }
        self.want(&request.resource_names)?;
        if let Wanted::Named(names) = &self.wanted {
            // What is no longer wanted must be sent again when it is wanted again.
            self.sent.retain(|name, _| names.contains(name));
        }
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
