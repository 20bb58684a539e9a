//! Messages between the services of different regions.
//!
//! A service sends each peer a ping every interval; the peer replies with a [`Heartbeat`]. The sender of the ping therefore
//! measures the age of a heartbeat by its own clock.

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

/// Reply to a ping.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Heartbeat {
    /// Version of the software, for operators.
    pub version: Arc<str>,
    /// Whether the gateway is connected. A region without one serves no requests.
    pub has_gateway: bool,
    /// Reports by model.
    pub pools: Vec<(Arc<str>, PeerReport)>,
}
