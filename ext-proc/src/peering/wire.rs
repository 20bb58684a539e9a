//! The messages of `peering.proto`, as `prost` encodes them.
//!
//! Written by hand, and compared with the `.proto` by a test: a few messages do not justify a parser of that language, a
//! generator and what both need (some thirty packages) in each build.

use prost::{Message, Oneof};

/// One message on a stream.
#[derive(Clone, PartialEq, Message)]
pub struct Envelope {
    /// The caller's number for this stream.
    #[prost(uint64, tag = "1")]
    pub session: u64,
    /// The message.
    #[prost(oneof = "Payload", tags = "2, 3, 4, 5, 6")]
    pub payload: Option<Payload>,
}

/// The kinds of messages.
#[derive(Clone, PartialEq, Oneof)]
pub enum Payload {
    /// The first of each side.
    #[prost(message, tag = "2")]
    Hello(Hello),
    /// How are you?
    #[prost(message, tag = "3")]
    Ping(Ping),
    /// The answer.
    #[prost(message, tag = "4")]
    Heartbeat(Heartbeat),
    /// Who a region's replicas are.
    #[prost(message, tag = "5")]
    Record(Record),
    /// What was placed where.
    #[prost(message, tag = "6")]
    Placements(Placements),
}

/// Who speaks.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Hello {
    /// The version of the protocol.
    #[prost(uint32, tag = "1")]
    pub protocol: u32,
    /// The speaker's region.
    #[prost(string, tag = "2")]
    pub region: String,
    /// The number of this start of the speaker.
    #[prost(uint64, tag = "3")]
    pub incarnation: u64,
    /// The speaker's software.
    #[prost(string, tag = "4")]
    pub software: String,
}

/// How are you?
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Ping {
    /// Grows with each ping, over all streams of one start of the caller.
    #[prost(uint64, tag = "1")]
    pub seq: u64,
    /// What the caller has of the callee's record.
    #[prost(message, optional, tag = "2")]
    pub has: Option<Held>,
    /// Where the caller stands.
    #[prost(message, optional, tag = "3")]
    pub stance: Option<Stance>,
}

/// The answer to one ping.
#[derive(Clone, PartialEq, Message)]
pub struct Heartbeat {
    /// The `seq` of the ping.
    #[prost(uint64, tag = "1")]
    pub answers: u64,
    /// The speaker's software, for people.
    #[prost(string, tag = "2")]
    pub software: String,
    /// Where the speaker stands.
    #[prost(message, optional, tag = "3")]
    pub stance: Option<Stance>,
    /// Its pools.
    #[prost(message, repeated, tag = "4")]
    pub pools: Vec<PoolReport>,
    /// What it knows of other regions.
    #[prost(message, repeated, tag = "5")]
    pub views: Vec<View>,
}

/// Where a service stands on who adopts whose replicas. Regions are named.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Stance {
    /// Which start of the service says this.
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    /// Grows with each change, within one start.
    #[prost(uint64, tag = "2")]
    pub number: u64,
    /// Whether its gateway is connected to it.
    #[prost(bool, tag = "3")]
    pub gateway: bool,
    /// Whose replicas it holds.
    #[prost(string, repeated, tag = "4")]
    pub holds: Vec<String>,
    /// Whose it leaves to others.
    #[prost(string, repeated, tag = "5")]
    pub yields: Vec<String>,
    /// Whose it asks others to leave to it.
    #[prost(string, repeated, tag = "6")]
    pub asks: Vec<String>,
}

/// What a region says of one of its pools.
#[derive(Clone, PartialEq, Message)]
pub struct PoolReport {
    /// The name of the model.
    #[prost(string, tag = "1")]
    pub model: String,
    /// Replicas that take another request now.
    #[prost(uint32, tag = "2")]
    pub available: u32,
    /// Replicas in all.
    #[prost(uint32, tag = "3")]
    pub replicas: u32,
    /// Requests that they could start now.
    #[prost(uint32, tag = "4")]
    pub free_capacity: u32,
    /// Requests that wait.
    #[prost(uint32, tag = "5")]
    pub queue: u32,
    /// How many requests a second leave the queue.
    #[prost(float, tag = "6")]
    pub drain_per_s: f32,
}

/// What a service knows of another region.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct View {
    /// Which region.
    #[prost(string, tag = "1")]
    pub region: String,
    /// How it is, where it is known to live.
    #[prost(message, optional, tag = "2")]
    pub alive: Option<Alive>,
    /// What the service has of its record.
    #[prost(message, optional, tag = "3")]
    pub has: Option<Held>,
}

/// A region that lives.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Alive {
    /// Whether its gateway is connected.
    #[prost(bool, tag = "1")]
    pub gateway: bool,
    /// The round trip to it, in microseconds.
    #[prost(uint64, tag = "2")]
    pub round_trip_us: u64,
}

/// Which versions of a record somebody has.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Held {
    /// Version of the replicas.
    #[prost(uint64, tag = "1")]
    pub replicas: u64,
    /// Version of the newest list of heirs.
    #[prost(uint64, tag = "2")]
    pub heirs: u64,
    /// Whether the list before it is known, too.
    #[prost(bool, tag = "3")]
    pub settled: bool,
}

/// Who a region's replicas are, and who may adopt them.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Record {
    /// Whose.
    #[prost(string, tag = "1")]
    pub region: String,
    /// Grows with each change of the replicas.
    #[prost(uint64, tag = "2")]
    pub version: u64,
    /// The replicas.
    #[prost(message, repeated, tag = "3")]
    pub pools: Vec<Members>,
    /// Who may adopt them.
    #[prost(message, optional, tag = "4")]
    pub heirs: Option<Heirs>,
}

/// The replicas of one pool.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Members {
    /// The name of the model.
    #[prost(string, tag = "1")]
    pub model: String,
    /// Their addresses.
    #[prost(string, repeated, tag = "2")]
    pub replicas: Vec<String>,
}

/// Regions, the first heir first.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Heirs {
    /// Grows with each change; zero: there is no list.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    /// The newest list.
    #[prost(string, repeated, tag = "2")]
    pub order: Vec<String>,
    /// The list of the version before, where it is known.
    #[prost(message, optional, tag = "3")]
    pub prior: Option<RegionList>,
}

/// Names of regions.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct RegionList {
    /// The names.
    #[prost(string, repeated, tag = "1")]
    pub regions: Vec<String>,
}

/// What a service has placed since it said so last; for siblings only.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Placements {
    /// One for each request.
    #[prost(message, repeated, tag = "1")]
    pub placements: Vec<Placement>,
}

/// One request's prompt, and where it went.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Placement {
    /// The name of the model.
    #[prost(string, tag = "1")]
    pub model: String,
    /// Where it went.
    #[prost(oneof = "Target", tags = "2, 3")]
    pub target: Option<Target>,
    /// The last block that the target was known to have before.
    #[prost(message, optional, tag = "4")]
    pub parent: Option<BlockHash>,
    /// The blocks behind it: hashes, and where each lies, as many of the one as of the other.
    #[prost(fixed64, repeated, tag = "5")]
    pub hashes: Vec<u64>,
    /// Where each lies.
    #[prost(uint32, repeated, tag = "6")]
    pub ends_bytes: Vec<u32>,
}

/// One block of a prompt's chain of blocks.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct BlockHash {
    /// Hash of the prompt up to here.
    #[prost(fixed64, tag = "1")]
    pub hash: u64,
    /// Where it lies, in bytes.
    #[prost(uint32, tag = "2")]
    pub end_bytes: u32,
}

/// Where a request went.
#[derive(Clone, PartialEq, Eq, Hash, Oneof)]
pub enum Target {
    /// The address of a replica of this region.
    #[prost(string, tag = "2")]
    Replica(String),
    /// The name of another region.
    #[prost(string, tag = "3")]
    Region(String),
}

#[cfg(test)]
mod proto;
