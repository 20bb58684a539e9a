//! The messages of a link, in the core's types.

use std::sync::Arc;

use isotherm_regions::{Heartbeat, Ping};

use super::scaling_share::ScalingShare;
use crate::pool::SharedPlacement;

/// A message, without the Hello that opens a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The caller asks for a heartbeat.
    Ping(Ping),
    /// The callee's reply to one ping.
    Heartbeat(Heartbeat),
    /// Placements of a sibling, each with the model of its pool.
    Placements(Vec<(Arc<str>, SharedPlacement)>),
    /// Demand and numbers of replicas.
    Scaling(Arc<ScalingShare>),
}
