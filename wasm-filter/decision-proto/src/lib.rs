//! The decision stream: one gRPC stream between each worker of an Envoy and the service, for all requests of that worker.
//!
//! On the stream a request is one message in each direction, its end is one more that needs no answer, and Envoy's external
//! processing filter does not run.
//!
//! ```text
//! filter                                            service
//!   |----------------- (stream opens) ----------------->|
//!   |<---------------- ServerMessage {} ----------------|   the stream is usable from here on
//!   |-- requests [{ request_id, headers }] ------------>|
//!   |<- responses [{ request_id, wait: timeout_ms }] ---|   only when the request is queued
//!   |<- responses [{ request_id, route | ... }] --------|   several in one message, in any order
//!   |-- starts [request_id] --------------------------->|   the first token of a streamed response came
//!   |-- stored [{ request_id, response_id }] ---------->|   the replica may store the response under this id
//!   |<- responses [{ request_id, immediate_response }] -|   only when the replica of a decided request hangs
//!   |-- ends [{ request_id, outcome }] ---------------->|   also for a queued request: its client disconnected
//!   |<- go_away ----------------------------------------|   the service stops: no new requests, only ends
//! ```
//! The metadata of the call names the listener of the requests, as that of external processing does: the service believes
//! headers about regions only on a stream of the listener for regions.
//!
//! The filter chooses the request ids; each is used once in the life of the stream. A stream that closes ends all its
//! requests, for the service as for the filter, which turns to external processing instead.

#[rustfmt::skip]
#[allow(missing_docs, clippy::allow_attributes_without_reason, reason = "generated from the .proto file")]
mod generated;

pub use generated::decision_response::Action;
pub use generated::*;

/// The gRPC service.
pub const SERVICE: &str = "isotherm.decision.v1.Decisions";
/// The only method of [`SERVICE`]; both directions are streams.
pub const METHOD: &str = "StreamDecisions";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_and_its_method_are_those_of_the_proto_file() {
        let proto = include_str!("decisions.proto");
        let (package, service) = SERVICE.rsplit_once('.').unwrap_or_default();
        assert!(proto.contains(&format!("package {package};")));
        assert!(proto.contains(&format!("service {service} {{")));
        assert!(proto.contains(&format!("rpc {METHOD}(")));
    }
}
