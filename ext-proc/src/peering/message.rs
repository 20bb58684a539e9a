//! The messages between services, in the core's types.

use std::sync::Arc;

use isotherm_regions::Heartbeat;

use super::scaling_share::ScalingShare;
use crate::pool::SharedPlacement;

/// A message.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// A request for a heartbeat.
    Ping {
        /// Number that the heartbeat repeats.
        nonce: u64,
    },
    /// The reply to one ping.
    Heartbeat(Heartbeat),
    /// Placements of a sibling, each with the model of its pool.
    Placements(Vec<(Arc<str>, SharedPlacement)>),
    /// Demand and numbers of replicas.
    Scaling(Arc<ScalingShare>),
}
