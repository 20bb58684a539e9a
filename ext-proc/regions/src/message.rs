//! Messages between the services of different regions.
//!
//! A service sends each peer a [`Ping`] every interval, on the link that it dialled; the peer replies with a [`Heartbeat`].
//! The sender of the ping therefore measures the age of a heartbeat by its own clock. A ping carries an advertisement as
//! well, so that a service is heard even when only one of the two can dial the other.

use core::borrow::Borrow;
use core::fmt;
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use isotherm_router::PeerReport;
use serde::{Deserialize, Serialize};

/// Name of a region, the same everywhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RegionName(Arc<str>);

impl RegionName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for RegionName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl Borrow<str> for RegionName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RegionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Random number of one start of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// Number of one link that a service dialled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub u64);

/// State of a service that decides about adoptions. The greater version of one incarnation is the newer one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertisement {
    /// Start of the service.
    pub incarnation: Incarnation,
    /// Grows with each change within one incarnation.
    pub version: u64,
    /// Whether the region's gateway is connected. A region without one serves no requests.
    pub has_gateway: bool,
    /// Owners of the replicas that the region has adopted.
    pub adopted: BTreeSet<RegionName>,
    /// Owners whose replicas the region leaves to others, until it has asked every region again.
    pub yielded: BTreeSet<RegionName>,
    /// Owners whose replicas the region requests, because the successor lists disagree about the first.
    pub requested: BTreeSet<RegionName>,
}

/// Request for a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ping {
    /// Link on which the ping is sent.
    pub session: Session,
    /// Grows with each ping, over all links of one incarnation.
    pub seq: u64,
    /// Version of the receiver's record that the sender has. The reply includes a newer record.
    pub record_version: RecordVersion,
    /// State of the sender.
    pub advertisement: Advertisement,
}

/// Reply to a ping.
#[derive(Clone, Debug, PartialEq)]
pub struct Heartbeat {
    /// Link on which the ping arrived.
    pub session: Session,
    /// Sequence number of the ping.
    pub ping_seq: u64,
    /// Version of the software, for operators.
    pub version: Arc<str>,
    /// State of the sender.
    pub advertisement: Advertisement,
    /// Reports by model.
    pub pools: Vec<(Arc<str>, PeerReport)>,
    /// The sender's view of the other regions.
    pub views: Vec<PeerView>,
}

/// View of one region by a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// Region in question.
    pub region: RegionName,
    /// Whether the service hears the region.
    pub liveness: Liveness,
    /// Version of the region's record that the service has.
    pub record_version: RecordVersion,
}

/// Whether a region is heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Liveness {
    /// The region is not heard.
    #[default]
    Silent,
    /// The region is heard, or runs and must not be used.
    Alive {
        /// Whether the region's gateway is connected; presumed for a region that must not be used.
        has_gateway: bool,
        /// Round trip; zero while unknown.
        round_trip: Duration,
    },
}

impl Liveness {
    /// Whether the region is not heard.
    pub const fn is_silent(self) -> bool {
        matches!(self, Self::Silent)
    }

    /// Whether the region is heard and has a gateway.
    pub const fn is_up(self) -> bool {
        matches!(
            self,
            Self::Alive {
                has_gateway: true,
                ..
            }
        )
    }
}

/// Versions of the parts of a record; all zero without a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordVersion {
    /// Version of the replicas.
    pub replicas: u64,
    /// Version of the newest successor list.
    pub successors: u64,
    /// Whether the list before the newest one is known. Without it the newest list puts no region ahead.
    pub has_previous: bool,
}

/// Replicas of a region and the regions that may adopt them. Every other region persists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionRecord {
    /// Owner of the record.
    pub region: RegionName,
    /// Version of the replicas, which grows with each change of `pools`.
    pub version: u64,
    /// Replicas by pool.
    pub pools: Vec<PoolReplicas>,
    /// Regions that may adopt the replicas.
    pub successors: SuccessorList,
}

impl RegionRecord {
    /// Returns the versions of the parts.
    pub const fn record_version(&self) -> RecordVersion {
        RecordVersion {
            replicas: self.version,
            successors: self.successors.version,
            has_previous: self.successors.previous.is_some(),
        }
    }
}

/// Replicas of one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolReplicas {
    /// Name of the model.
    pub model: Arc<str>,
    /// Addresses, opaque to the core.
    pub replicas: Vec<Arc<str>>,
}

/// Regions that may adopt a region's replicas, first choice first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuccessorList {
    /// Grows with each change; zero before the first list.
    pub version: u64,
    /// Newest list, in order of round trip as the owner measured it.
    pub order: Vec<RegionName>,
    /// List of the version before; `None` when the owner has lost it.
    pub previous: Option<Vec<RegionName>>,
}

/// Messages that a service sends in reply to a ping.
#[derive(Clone, Debug, PartialEq)]
pub struct PingReply {
    /// Sent in every reply.
    pub heartbeat: Heartbeat,
    /// The sender's record, if the receiver has an older one. Sent after the heartbeat.
    pub record: Option<Arc<RegionRecord>>,
}
