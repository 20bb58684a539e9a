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

use crate::PeerReport;

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
pub struct Stance {
    /// Which life of the service says this.
    pub incarnation: Incarnation,
    /// Grows with each change, within one life.
    pub number: u64,
    /// Whether its own gateway is connected to it: a region without one serves nobody.
    pub gateway: bool,
    /// The regions whose replicas it holds.
    pub holds: BTreeSet<RegionName>,
    /// The regions that it leaves to others: it will not adopt them before it has asked everybody again.
    pub yields: BTreeSet<RegionName>,
    /// The regions that it asks the others to leave to it, because their lists do not agree on who is first.
    pub asks: BTreeSet<RegionName>,
}

/// What a service asks with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ping {
    /// The link on which it is sent.
    pub session: Session,
    /// Grows with each ping, over all links of one life.
    pub seq: u64,
    /// What the asker has of the record of the one that is asked; an answer brings a newer one along.
    pub has: Held,
    /// Where the asker stands.
    pub stance: Stance,
}

/// What a service answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Heartbeat {
    /// The link on which it was asked.
    pub session: Session,
    /// The ping that this answers.
    pub answers: u64,
    /// The version of the software, for people.
    pub version: Arc<str>,
    /// Where it stands.
    pub stance: Stance,
    /// What it says of its pools, by the name of the model.
    pub pools: Vec<(Arc<str>, PeerReport)>,
    /// What it knows of the other regions.
    pub views: Vec<View>,
}

/// What a service knows of another region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Which region.
    pub region: RegionName,
    /// Whether it is heard.
    pub sight: Sight,
    /// What the service has of the region's record.
    pub has: Held,
}

/// How a region is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sight {
    /// Nothing is heard of it.
    #[default]
    Silent,
    /// It is heard, or it answers and must not be used: it lives.
    Alive {
        /// Whether it says that its gateway is connected; presumed where it cannot be asked.
        gateway: bool,
        /// The round trip to it; zero where it is not known.
        round_trip: Duration,
    },
}

impl Sight {
    /// Whether nothing is heard of it.
    #[must_use]
    pub const fn is_silent(self) -> bool {
        matches!(self, Self::Silent)
    }

    /// Whether it is seen with its gateway.
    #[must_use]
    pub const fn is_up(self) -> bool {
        matches!(self, Self::Alive { gateway: true, .. })
    }
}

/// Which versions of a record somebody has; all zero: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// Version of the replicas.
    pub replicas: u64,
    /// Version of the newest list of heirs.
    pub heirs: u64,
    /// Whether the list before it is known too. Without it the newest one proves nothing.
    pub settled: bool,
}

/// Who a region's replicas are, and who may adopt them. Kept on disk by every other region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whose.
    pub region: RegionName,
    /// Version of the replicas: grows with each change of `pools`.
    pub version: u64,
    /// The replicas.
    pub pools: Vec<Members>,
    /// Who may adopt them.
    pub heirs: Heirs,
}

impl Record {
    /// The versions in it.
    #[must_use]
    pub const fn held(&self) -> Held {
        Held {
            replicas: self.version,
            heirs: self.heirs.version,
            settled: self.heirs.prior.is_some(),
        }
    }
}

/// The replicas of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// The name of the model.
    pub model: Arc<str>,
    /// The replicas' addresses; the core never reads them.
    pub replicas: Vec<Arc<str>>,
}

/// Who may adopt a region's replicas, the first first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heirs {
    /// Grows with each change; zero: there is no list yet.
    pub version: u64,
    /// The newest list: in order of round trip, as the region itself measured it.
    pub order: Vec<RegionName>,
    /// The list of the version before; none when the region has lost it.
    pub prior: Option<Vec<RegionName>>,
}

/// What a service sends in answer to a ping.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Always.
    pub heartbeat: Heartbeat,
    /// Its own record, where the asker has an older one; to be sent after the heartbeat.
    pub record: Option<Arc<Record>>,
}
