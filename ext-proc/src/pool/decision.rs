//! Decisions of a pool on requests.

use std::sync::Arc;
use std::time::Duration;

use isotherm_router::{Decision, ForwardDecision, RejectReason};
use tokio::sync::oneshot;

use super::endpoint::Endpoint;
use super::peer_table::{PeerEntry, PeerTable};

/// The state of a request right after its submission to a pool.
#[derive(Debug)]
pub enum Submission {
    /// The pool decided at once.
    Decided(PoolDecision),
    /// The request is queued; the receiver yields the decision.
    Queued(oneshot::Receiver<PoolDecision>),
}

/// The decision on a request.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolDecision {
    /// The request goes to a replica.
    Dispatch(Route),
    /// The request goes to another region.
    Forward(ForwardRoute),
    /// The request is rejected.
    Reject {
        /// Reason for the rejection.
        reason: RejectReason,
        /// Delay after which the client may try again.
        retry_after: Duration,
    },
}

/// A route to a replica of this region.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The chosen replica.
    pub chosen: Endpoint,
    /// Replicas to try next, best first.
    pub fallbacks: Vec<Endpoint>,
    /// The prefill replica that computes the prompt, if one does.
    pub prefiller: Option<Endpoint>,
    /// Owner of the chosen replica and the revision of its lease, if this region holds the lease of another one.
    pub lease: Option<Box<(Arc<str>, u64)>>,
    /// The router's decision.
    pub decision: Decision,
}

/// A route to another region.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardRoute {
    /// The chosen region.
    pub peer: PeerEntry,
    /// The table that the region's id belongs to.
    pub peer_table: Arc<PeerTable>,
    /// The router's decision.
    pub forwarding: ForwardDecision,
}
