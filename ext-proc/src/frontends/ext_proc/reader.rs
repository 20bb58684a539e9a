//! Reads the response of a request for its outcome, where the gateway sends responses.
//!
//! The reader runs the filter's own code. Of a gateway that sends the headers alone it learns the status, and the time of the
//! first byte of a whole response. An attribute of Envoy's names the replica. Usage stays unknown then.
//!
//! A filter behind the gateway's external processing reports the outcome in a trailer; that report comes first, since the
//! filter sees the response sooner.

use std::collections::HashMap;
use std::time::Instant;

use envoy_types::pb::envoy::config::core::v3::Metadata;
use envoy_types::pb::google::protobuf::Struct;
use envoy_types::pb::google::protobuf::value::Kind;
use isotherm_fingerprint::names;
use isotherm_fingerprint::outcome::Outcome;
use isotherm_wasm_filter_core::response::{ResponseFlow, explain_local};
use isotherm_wasm_filter_core::{HeaderEdit, Headers};

use super::response::LB_NAMESPACE;

/// Attributes of Envoy's, by the namespace of the filter that sends them.
pub(super) type Attributes = HashMap<String, Struct>;

/// The attribute with the host that responds.
const UPSTREAM: &str = "upstream.address";
/// The attribute with the reason for which Envoy itself responds.
const DETAILS: &str = "response.code_details";

/// The response of one request, as far as it has arrived.
#[derive(Debug)]
pub(super) struct ResponseReader {
    flow: ResponseFlow,
    started: Instant,
    /// The endpoint that responded, if the gateway names it.
    served: Option<String>,
    /// The reason for which Envoy itself responds, or that an endpoint did, if the gateway tells it.
    details: Option<String>,
}

impl ResponseReader {
    /// Starts a reader for a request that is sent now. `decision` is the header value for the client.
    pub(super) fn start(client_wants_report: bool, decision: Option<String>) -> Self {
        Self {
            flow: ResponseFlow::sent(0, client_wants_report, decision.map(String::into_bytes)),
            started: Instant::now(),
            served: None,
            details: None,
        }
    }

    /// Records that the whole request has been sent.
    pub(super) fn end_request(&mut self) {
        let now = nanoseconds_since(self.started);
        self.flow.end_request(now);
    }

    /// Reads the headers of the response and returns their changes.
    pub(super) fn headers(
        &mut self,
        headers: &Headers,
        metadata: Option<&Metadata>,
        attributes: &Attributes,
    ) -> Vec<HeaderEdit> {
        let upstream = || attribute(attributes, UPSTREAM).map(str::to_owned);
        self.served = metadata.and_then(served).or_else(upstream);
        self.details = attribute(attributes, DETAILS).map(str::to_owned);
        self.flow.headers(headers)
    }

    /// Records that the response begins, where its body stays at the gateway.
    pub(super) fn begin(&mut self) {
        let now = nanoseconds_since(self.started);
        self.flow.begin(now);
    }

    /// Reads a piece of the body. Returns whether it has the first token of a streamed response.
    pub(super) fn body(&mut self, piece: &[u8]) -> bool {
        let had_begun = self.flow.has_begun();
        let started = self.started;
        let range = self.flow.body(piece.len(), || nanoseconds_since(started));
        self.flow.feed(piece.get(range).unwrap_or_default());
        !had_begun && self.flow.has_begun()
    }

    /// The id of a response that the engine may store, once.
    pub(super) fn take_new_id(&mut self) -> Option<&str> {
        self.flow.take_new_id()
    }

    /// Returns the outcome at the end of the response; `None` for a response without headers.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        let mut outcome = self.flow.outcome(self.served.clone())?;
        if let Some(details) = &self.details {
            explain_local(&mut outcome, details);
        }
        Some(outcome)
    }
}

fn attribute<'a>(attributes: &'a Attributes, name: &str) -> Option<&'a str> {
    let mut values = attributes.values().filter_map(|all| all.fields.get(name));
    match values.next()?.kind.as_ref()? {
        Kind::StringValue(text) => Some(text),
        _ => None,
    }
}

fn nanoseconds_since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The endpoint that responded (endpoint picker protocol since version 1.0).
fn served(metadata: &Metadata) -> Option<String> {
    let lb = metadata.filter_metadata.get(LB_NAMESPACE)?;
    match lb.fields.get(names::DESTINATION_SERVED)?.kind.as_ref()? {
        Kind::StringValue(endpoint) => Some(endpoint.clone()),
        _ => None,
    }
}
