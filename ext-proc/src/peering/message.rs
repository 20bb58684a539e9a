//! The messages of a link, in the core's types.

use std::sync::Arc;

use isotherm_fingerprint::BlockHash;
use isotherm_regions::{Heartbeat, Ping, RegionRecord};

/// A message, without the Hello that opens a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The caller asks for a heartbeat.
    Ping(Ping),
    /// The callee's reply to one ping.
    Heartbeat(Heartbeat),
    /// The replicas of a region, and the regions that may adopt them.
    Record(Arc<RegionRecord>),
    /// Requests that a sibling has placed.
    Placements(Vec<NamedPlacement>),
}

/// A placed request. Replica indexes and peer ids differ between services, so names and addresses identify the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPlacement {
    /// The pool, by the name of its model.
    pub model: Arc<str>,
    /// Where the request went.
    pub target: NamedTarget,
    /// The last block of the prompt that the target was known to have before.
    pub parent: Option<BlockHash>,
    /// The blocks behind `parent`.
    pub blocks: Box<[BlockHash]>,
}

/// The target of a placed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedTarget {
    /// A replica of this region, by its address.
    Replica(Arc<str>),
    /// Another region, by its name.
    Region(Arc<str>),
}
