//! What services of different regions say to each other.
//!
//! A service asks each peer with a [`Ping`] every interval, on the link that it dialled itself; the peer answers each
//! with a [`Heartbeat`]. So the age of what is said is measured by the asker's own clock. A ping, too, says where its
//! sender stands: that the sender lives is seen even where only one of the two can dial the other.

use core::borrow::Borrow;
use core::fmt;
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use isotherm_router::PeerReport;

/// A region's name, the same everywhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionName(Arc<str>);

impl RegionName {
    /// The name as text.
    #[must_use]
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

/// A number that is new with each start of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// A number that is new with each link that a service dials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub u64);

/// Where a service stands on who adopts whom. Of two, the one with the greater number is the later one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertisement {
    /// Which life of the service says this.
    pub incarnation: Incarnation,
    /// Grows with each change, within one life.
    pub version: u64,
    /// Whether its own gateway is connected to it: a region without one serves nobody.
    pub has_gateway: bool,
    /// The regions whose replicas it holds.
    pub adopted: BTreeSet<RegionName>,
    /// The regions that it leaves to others: it will not adopt them before it has asked everybody again.
    pub yielded: BTreeSet<RegionName>,
    /// The regions that it asks the others to leave to it, because their lists do not agree on who is first.
    pub requested: BTreeSet<RegionName>,
}

/// What a service asks with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ping {
    /// The link on which it is sent.
    pub session: Session,
    /// Grows with each ping, over all links of one life.
    pub seq: u64,
    /// What the asker has of the record of the one that is asked; an answer brings a newer one along.
    pub record_version: RecordVersion,
    /// Where the asker stands.
    pub advertisement: Advertisement,
}

/// What a service answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Heartbeat {
    /// The link on which it was asked.
    pub session: Session,
    /// The ping that this answers.
    pub ping_seq: u64,
    /// The version of the software, for people.
    pub version: Arc<str>,
    /// Where it stands.
    pub advertisement: Advertisement,
    /// What it says of its pools, by the name of the model.
    pub pools: Vec<(Arc<str>, PeerReport)>,
    /// What it knows of the other regions.
    pub views: Vec<PeerView>,
}

/// What a service knows of another region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// Which region.
    pub region: RegionName,
    /// Whether it is heard.
    pub liveness: Liveness,
    /// What the service has of the region's record.
    pub record_version: RecordVersion,
}

/// How a region is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Liveness {
    /// Nothing is heard of it.
    #[default]
    Silent,
    /// It is heard, or it answers and must not be used: it lives.
    Alive {
        /// Whether it says that its gateway is connected; presumed where it cannot be asked.
        has_gateway: bool,
        /// The round trip to it; zero where it is not known.
        round_trip: Duration,
    },
}

impl Liveness {
    /// Whether nothing is heard of it.
    #[must_use]
    pub const fn is_silent(self) -> bool {
        matches!(self, Self::Silent)
    }

    /// Whether it is seen with its gateway.
    #[must_use]
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

/// Which versions of a record somebody has; all zero: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordVersion {
    /// Version of the replicas.
    pub replicas: u64,
    /// Version of the newest list of heirs.
    pub successors: u64,
    /// Whether the list before it is known too. Without it the newest one proves nothing.
    pub has_previous: bool,
}

/// Who a region's replicas are, and who may adopt them. Kept on disk by every other region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionRecord {
    /// Whose.
    pub region: RegionName,
    /// Version of the replicas: grows with each change of `pools`.
    pub version: u64,
    /// The replicas.
    pub pools: Vec<PoolReplicas>,
    /// Who may adopt them.
    pub successors: SuccessorList,
}

impl RegionRecord {
    /// The versions in it.
    #[must_use]
    pub const fn record_version(&self) -> RecordVersion {
        RecordVersion {
            replicas: self.version,
            successors: self.successors.version,
            has_previous: self.successors.previous.is_some(),
        }
    }
}

/// The replicas of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolReplicas {
    /// The name of the model.
    pub model: Arc<str>,
    /// The replicas' addresses; the core never reads them.
    pub replicas: Vec<Arc<str>>,
}

/// Who may adopt a region's replicas, the first first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuccessorList {
    /// Grows with each change; zero: there is no list yet.
    pub version: u64,
    /// The newest list: in order of round trip, as the region itself measured it.
    pub order: Vec<RegionName>,
    /// The list of the version before; none when the region has lost it.
    pub previous: Option<Vec<RegionName>>,
}

/// What a service sends in answer to a ping.
#[derive(Clone, Debug, PartialEq)]
pub struct PingReply {
    /// Always.
    pub heartbeat: Heartbeat,
    /// Its own record, where the asker has an older one; to be sent after the heartbeat.
    pub record: Option<Arc<RegionRecord>>,
}
