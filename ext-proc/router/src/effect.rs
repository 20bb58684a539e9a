//! The effects of a router, which its driver carries out.

use core::time::Duration;

use smallvec::SmallVec;
use strum::{AsRefStr, EnumIter, IntoStaticStr};

use crate::{PeerId, ReplicaId, RequestId, WorkClass};

/// An effect that the driver must carry out.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Sends a request to a replica.
    Dispatch(RequestId, Decision),
    /// Forwards a request to a peer region.
    Forward(RequestId, ForwardDecision),
    /// Rejects a request.
    Reject {
        /// The request.
        id: RequestId,
        /// The reason.
        reason: RejectReason,
        /// Time after which the client may retry.
        retry_after: Duration,
    },
    /// A replica hangs: it gets no new requests, except for trials.
    Hung {
        /// The replica.
        replica: ReplicaId,
        /// Requests there that get no response. The driver answers their clients, and reports each one's end as usual.
        abandoned: Box<[RequestId]>,
    },
}

/// The decision to dispatch a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The chosen replica.
    pub replica: ReplicaId,
    /// Replicas to try next, best first, when the chosen one fails before the first byte.
    pub fallbacks: SmallVec<[ReplicaId; 3]>,
    /// The prefill replica that computes the prompt for the chosen one, if one does.
    pub prefiller: Option<ReplicaId>,
    /// The reason for this replica.
    pub reason: Reason,
    /// Prompt bytes that the index holds for the chosen replica.
    pub matched_bytes: u32,
    /// Estimated tokens of the matched bytes.
    pub matched_tokens: u32,
    /// Time in the queue.
    pub queued_for: Duration,
    /// Class of the request, for the order inside the engine.
    pub class: WorkClass,
}

/// The decision to forward a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardDecision {
    /// The chosen peer region.
    pub peer: PeerId,
    /// The reason for this peer.
    pub reason: Reason,
    /// Prompt bytes that the index over peers holds for the peer.
    pub matched_bytes: u32,
    /// Estimated tokens of the matched bytes.
    pub matched_tokens: u32,
    /// Time in the queue.
    pub queued_for: Duration,
    /// Estimated time to first token without the prefill: the round trip and the peer's queue.
    pub estimated_ttft: Duration,
}

/// The reason for a replica or a peer region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, AsRefStr, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    /// The cache holds the longest prefix.
    Prefix,
    /// The hash ring selected it.
    Ring,
    /// The load is the least.
    LeastLoaded,
    /// The match is short, so the load is spread.
    Spread,
    /// Round robin.
    Turn,
    /// The policy chose it at random.
    Random,
    /// The estimated time to first token is the lowest, the round trip included.
    Soonest,
    /// The memory of the region's replicas is little used.
    Utilisation,
    /// The replica holds the adapter, and no part of the prompt.
    Adapter,
}

/// The reason for a rejection.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, AsRefStr, EnumIter, IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
pub enum RejectReason {
    /// The queue is full.
    QueueFull,
    /// The request waited for as long as it may.
    WaitedTooLong,
    /// None of the replicas that may serve the request exists.
    EmptySubset,
    /// The pool has no replica.
    NoReplica,
    /// The request waited for as long as it may, and no replica had a good probe: the probes are at fault, not the load.
    NoHealthyReplica,
    /// The queue is too long for a forwarded request.
    RegionFull,
    /// The tenant has as many requests waiting, or in flight, as it may have.
    TenantLimit,
    /// The service shuts down.
    ShuttingDown,
    /// Two replicas broke on the prompt, and for a while no replica gets it.
    Quarantined,
    /// The gate held the batch request for as long as it may: the pool had no capacity to spare.
    NoSpareCapacity,
}
