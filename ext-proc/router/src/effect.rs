//! What comes out of the core.

use core::time::Duration;

use smallvec::SmallVec;

use crate::{PeerId, ReplicaId, RequestId};

/// What the driver must do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send this request on its way.
    Dispatch {
        /// Which request.
        id: RequestId,
        /// Where, and why.
        decision: Decision,
    },
    /// Send this request to another region.
    Forward {
        /// Which request.
        id: RequestId,
        /// Where, and why.
        forwarding: Forwarding,
    },
    /// Refuse this request.
    Reject {
        /// Which request.
        id: RequestId,
        /// Why.
        reason: RejectReason,
        /// When another try is worth while.
        retry_after: Duration,
    },
}

/// Where a request goes, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The chosen replica.
    pub replica: ReplicaId,
    /// PeerHandle to try next, best first, when the chosen one fails before the first byte.
    pub fallbacks: SmallVec<[ReplicaId; 3]>,
    /// Why this replica.
    pub reason: Reason,
    /// How many of the prompt's bytes the index holds for the chosen replica.
    pub matched_bytes: u32,
    /// How many tokens that is, by the prompt's own estimate.
    pub matched_tokens: u32,
    /// How long the request waited here.
    pub queued_for: Duration,
}

/// To which region a request goes, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// The chosen peer region.
    pub peer: PeerId,
    /// Why this one.
    pub reason: Reason,
    /// How many of the prompt's bytes the index over peers holds for it.
    pub matched_bytes: u32,
    /// How many tokens that is, by the prompt's own estimate.
    pub matched_tokens: u32,
    /// How long the request waited here.
    pub queued_for: Duration,
    /// How long until its first token, without the computation of the prompt: the round trip and the peer's queue.
    pub estimated_ttft: Duration,
}

/// Why a replica or a peer region was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Its cache holds the longest match.
    Prefix,
    /// The hash ring says so.
    Ring,
    /// It has the least load.
    LeastLoaded,
    /// The match was short: the load was spread.
    Spread,
    /// It was next in turn.
    Turn,
    /// It was drawn.
    Drawn,
    /// It is expected to begin first, the way there included.
    Soonest,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RejectReason {
    /// The queue is full.
    QueueFull,
    /// It waited for as long as it may.
    WaitedTooLong,
    /// None of the replicas that may serve it exists.
    EmptySubset,
    /// The pool has no replica.
    NoReplica,
    /// It waited for as long as it may, and at the end no replica had a good probe: look at the probes, not at the load.
    NoHealthyReplica,
    /// It came from another region, and the queue is longer than guests may make it.
    RegionFull,
    /// The service shuts down.
    ShuttingDown,
}

impl Reason {
    /// A short name for metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prefix => "prefix",
            Self::Ring => "ring",
            Self::LeastLoaded => "least_loaded",
            Self::Spread => "spread",
            Self::Turn => "turn",
            Self::Drawn => "drawn",
            Self::Soonest => "soonest",
        }
    }
}

impl RejectReason {
    /// A short name for metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::WaitedTooLong => "waited_too_long",
            Self::EmptySubset => "empty_subset",
            Self::NoReplica => "no_replica",
            Self::NoHealthyReplica => "no_healthy_replica",
            Self::RegionFull => "region_full",
            Self::ShuttingDown => "shutting_down",
        }
    }
}
