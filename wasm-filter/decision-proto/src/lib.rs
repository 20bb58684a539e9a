//! The decision stream: one gRPC stream between each worker of an Envoy and the service, for all requests of that worker.
//!
//! External processing opens a stream for each request and exchanges two messages on it. That is most of what a small
//! request costs Envoy and the service. On the decision stream a request is one message in each direction, its end is one
//! more that needs no answer, and Envoy's external processing filter does not run.
//!
//! ```text
//! filter                                            service
//!   |----------------- (stream opens) ----------------->|
//!   |<---------------- ServerMessage {} ----------------|   the stream is usable from here on
//!   |-- requests [{ request_id, headers }] ------------>|
//!   |<- responses [{ request_id, wait: timeout_ms }] ---|   only when the request is queued
//!   |<- responses [{ request_id, route | ... }] --------|   several in one message, in any order
//!   |-- ends [{ request_id, outcome }] ---------------->|   also for a queued request: its client disconnected
//!   |<- go_away ----------------------------------------|   the service stops: no new requests, only ends
//! ```
//! The filter holds an end back for up to a millisecond, so that the next request's message carries it. The service reads
//! the ends of a message before its requests.
//!
//! The filter chooses the request ids; each is used once in the life of the stream. A stream that closes ends all its
//! requests, for the service as for the filter, which turns to external processing instead. So a broken stream loses no
//! request.

use prost::{Message, Oneof};

/// The gRPC service.
pub const SERVICE: &str = "isotherm.decision.v1.Decisions";
/// The only method of [`SERVICE`]; both directions are streams.
pub const METHOD: &str = "StreamDecisions";
/// The HTTP/2 path of [`METHOD`].
pub const PATH: &str = "/isotherm.decision.v1.Decisions/StreamDecisions";

/// A message of the filter.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct ClientMessage {
    /// Requests that need a decision.
    #[prost(message, repeated, tag = "1")]
    pub requests: Vec<DecisionRequest>,
    /// Requests that have ended; the service reads them before `requests`.
    #[prost(message, repeated, tag = "2")]
    pub ends: Vec<RequestEnd>,
}

/// A request that needs a decision.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct DecisionRequest {
    /// The number of the request on this stream.
    #[prost(uint32, tag = "1")]
    pub request_id: u32,
    /// The headers that the service reads: those that the filter writes, `:method` and `:path`.
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<Header>,
}

/// An HTTP header.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Header {
    /// The name, in lower case.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The value, which may hold any bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// The end of a request, with or without a response.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct RequestEnd {
    /// The number of the request on this stream.
    #[prost(uint32, tag = "1")]
    pub request_id: u32,
    /// The outcome, encoded as in the trailer `x-isotherm-outcome`; empty when it is unknown (the client disconnected).
    #[prost(bytes = "vec", tag = "2")]
    pub outcome: Vec<u8>,
}

/// A message of the service. The first message of a stream is empty: it says that the stream is usable.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct ServerMessage {
    /// Decisions.
    #[prost(message, repeated, tag = "1")]
    pub responses: Vec<DecisionResponse>,
    /// Present when the service stops.
    #[prost(message, optional, tag = "2")]
    pub go_away: Option<GoAway>,
}

/// The service stops: it answers no request that comes after this message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct GoAway {}

/// The decision on one request.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct DecisionResponse {
    /// The number of the request on this stream.
    #[prost(uint32, tag = "1")]
    pub request_id: u32,
    /// What the filter does with the request; a filter that does not know the action falls back to external processing.
    #[prost(oneof = "Action", tags = "2, 3, 4, 5")]
    pub action: Option<Action>,
}

/// What the filter does with a request.
#[derive(Clone, PartialEq, Eq, Hash, Oneof)]
pub enum Action {
    /// The request goes to a replica.
    #[prost(message, tag = "2")]
    Route(Route),
    /// The request is queued; another response follows.
    #[prost(message, tag = "3")]
    Wait(Wait),
    /// The filter answers the client at once.
    #[prost(message, tag = "4")]
    ImmediateResponse(ImmediateResponse),
    /// External processing decides on the request.
    #[prost(message, tag = "5")]
    ExtProcFallback(ExtProcFallback),
}

/// The destination of a request.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Route {
    /// `ip:port[,ip:port...]`: the replica and its fallbacks.
    #[prost(string, tag = "1")]
    pub destination: String,
    /// Envoy's cluster, where it is not the one that the filter wrote; else empty.
    #[prost(string, tag = "2")]
    pub cluster: String,
    /// The value of the client's header `x-isotherm-decision`, where the configuration asks for it; else empty.
    #[prost(string, tag = "3")]
    pub decision: String,
}

/// A request waits in the service's queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Wait {
    /// How long the filter waits for the next response.
    #[prost(uint32, tag = "1")]
    pub timeout_ms: u32,
}

/// A response to the client.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct ImmediateResponse {
    /// The HTTP status.
    #[prost(uint32, tag = "1")]
    pub status: u32,
    /// The headers.
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<Header>,
    /// The body.
    #[prost(bytes = "vec", tag = "3")]
    pub body: Vec<u8>,
}

/// The service leaves the decision to external processing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct ExtProcFallback {}
