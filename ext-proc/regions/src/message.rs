//! Messages between the services of different regions.
//!
//! A service sends each peer a ping every interval; the peer replies with a [`Heartbeat`]. The sender of the ping therefore
//! measures the age of a heartbeat by its own clock.

use std::sync::Arc;

use isotherm_router::PeerReport;
use serde::{Deserialize, Serialize};

/// Name of a region, the same everywhere.
pub type RegionName = Arc<str>;

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
