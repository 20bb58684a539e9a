//! Messages between the services of different regions.
//!
//! A service sends each peer a [`Ping`] every interval, on the link that it dialled; the peer replies with a [`Heartbeat`].
//! The sender of the ping therefore measures the age of a heartbeat by its own clock.

use core::borrow::Borrow;
use core::fmt;
use std::sync::Arc;

use isotherm_router::PeerReport;
use serde::{Deserialize, Serialize};

/// Name of a region, the same everywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// Number of one link that a service dialled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub u64);

/// Request for a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping {
    /// Link on which the ping is sent.
    pub session: Session,
    /// Grows with each ping, over all links of one start of the service.
    pub seq: u64,
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
    /// Whether the gateway is connected. A region without one serves no requests.
    pub has_gateway: bool,
    /// Reports by model.
    pub pools: Vec<(Arc<str>, PeerReport)>,
}
