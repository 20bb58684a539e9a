//! What one side says to the other, in types of this program.

use std::sync::Arc;

use isotherm_fingerprint::BlockHash;
use isotherm_regions::{Heartbeat, Ping, RegionRecord};

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The caller asks how the callee is.
    Ping(Ping),
    /// The callee answers one ping.
    Heartbeat(Heartbeat),
    /// Who a region's replicas are, and its heirs.
    Record(Arc<RegionRecord>),
    /// What a sibling has placed where.
    Placements(Vec<NamedPlacement>),
}

/// A request that was placed. The numbers of replicas and peers differ between services, so they are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPlacement {
    /// The pool, by the name of its model.
    pub model: Arc<str>,
    /// Where it was sent.
    pub at: NamedTarget,
    /// The last block that the target was known to have before.
    pub parent: Option<BlockHash>,
    /// The blocks behind it.
    pub blocks: Box<[BlockHash]>,
}

/// Where a request was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedTarget {
    /// To a replica of this region, by its address.
    Replica(Arc<str>),
    /// To another region, by its name.
    Region(Arc<str>),
}
