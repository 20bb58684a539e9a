//! The line: one gRPC stream between each worker of an Envoy and the service, for all requests of that worker.
//!
//! External processing opens a stream for every request, and sends two messages on it: that is more than half of what
//! a request of 4 KB costs Envoy and the service together. On a line a request is one message there and one back, its
//! end is one more that nobody waits for, and Envoy's filter for external processing is not asked at all.
//!
//! ```text
//! filter                                   service
//!   |------------- (stream opens) ----------->|
//!   |<------------ FromService {} ------------|   the line is good from here on
//!   |-- asks [{ id, headers }] -------------->|
//!   |<- answers [{ id, waits: ms }] ----------|   only when it has to queue
//!   |<- answers [{ id, routed | ... }] -------|   several at once, in any order
//!   |-- ends [{ id, outcome }] -------------->|   also for one that waits: the client went away
//!   |<- leaving ------------------------------|   the service stops: ask nothing more, tell the ends
//! ```
//! An end waits up to a millisecond for a question that takes it along. In one message the ends come first.
//!
//! The filter chooses the numbers; each is used once for as long as the stream lives. A stream that ends has ended all
//! its requests, for the service as for the filter, which asks by external processing instead. So the line may break at
//! any time, and nothing is lost but its speed.

use prost::{Message, Oneof};

/// The gRPC service.
pub const SERVICE: &str = "isotherm.line.v1.Line";
/// Its only method, of which both directions are streams.
pub const METHOD: &str = "Converse";
/// Both, as HTTP/2 has them.
pub const PATH: &str = "/isotherm.line.v1.Line/Converse";

/// One message of the filter's.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct FromFilter {
    /// Requests that want to know where to go.
    #[prost(message, repeated, tag = "1")]
    pub asks: Vec<Ask>,
    /// Requests that ended before these were asked about.
    #[prost(message, repeated, tag = "2")]
    pub ends: Vec<End>,
}

/// A request that wants to know where to go.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Ask {
    /// Its number on this stream.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// What the service reads of its headers: those that the filter writes, `:method` and `:path`.
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<Header>,
}

/// A header.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Header {
    /// Its name, in lower case.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its value, which may hold any bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// A request has ended, with or without an answer.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct End {
    /// Its number on this stream.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// How, as the trailer `x-isotherm-outcome` says it; empty when nobody knows (the client went away).
    #[prost(bytes = "vec", tag = "2")]
    pub outcome: Vec<u8>,
}

/// One message of the service's. The first of a stream has nothing in it: it says that the stream is good.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct FromService {
    /// What was decided.
    #[prost(message, repeated, tag = "1")]
    pub answers: Vec<Answer>,
    /// The service stops: what is asked from now on gets no answer.
    #[prost(bool, tag = "2")]
    pub leaving: bool,
}

/// What becomes of one request.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Answer {
    /// Its number.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// What becomes of it.
    #[prost(oneof = "What", tags = "2, 3, 4, 5")]
    pub what: Option<What>,
}

/// The kinds of answers.
#[derive(Clone, PartialEq, Eq, Hash, Oneof)]
pub enum What {
    /// It goes to a replica.
    #[prost(message, tag = "2")]
    Routed(Routed),
    /// It waits; another answer follows.
    #[prost(message, tag = "3")]
    Waits(Waits),
    /// Its client gets an answer at once.
    #[prost(message, tag = "4")]
    Immediate(Immediate),
    /// It is none of the line's business: external processing has to be asked.
    #[prost(message, tag = "5")]
    Passed(Passed),
}

/// Where a request goes.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Routed {
    /// `ip:port[,ip:port...]`: the replica and its fallbacks.
    #[prost(string, tag = "1")]
    pub destination: String,
    /// Envoy's cluster, where it is not the one that the filter wrote; else empty.
    #[prost(string, tag = "2")]
    pub cluster: String,
    /// Why, for the client, where the configuration wants it told; else empty.
    #[prost(string, tag = "3")]
    pub decision: String,
}

/// A request waits in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Waits {
    /// For how long the filter is to wait for the next answer.
    #[prost(uint32, tag = "1")]
    pub milliseconds: u32,
}

/// An answer to the client.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Immediate {
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

/// Nothing is said of the request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Passed {}
