//! Peer regions, as a pool's router knows them: what each says of itself, and what is told to siblings.

use core::time::Duration;

use isotherm_fingerprint::BlockHash;

use crate::{ReplicaId, Time};

/// A peer region's identity: its place in the service's configuration, the same in all pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u16);

/// What is known of a peer region when it joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSpec {
    /// Its stable name: places it on the hash ring.
    pub name: String,
}

/// What a region says of one of its pools.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PeerReport {
    /// Replicas that take another request now.
    pub available: u32,
    /// Replicas in all.
    pub replicas: u32,
    /// Requests that they could start now, summed; `u32::MAX` where nothing bounds it.
    pub free_capacity: u32,
    /// Requests that wait.
    pub queue: u32,
    /// How many requests a second leave the queue when it is full of work.
    pub drain_per_s: f32,
}

/// A peer region, as this pool's router sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerStatus {
    /// Its identity.
    pub id: PeerId,
    /// Its name.
    pub name: String,
    /// Whether requests are forwarded to it, or why not.
    pub availability: PeerAvailability,
    /// What it said last.
    pub report: Option<PeerReport>,
    /// When it was asked for that.
    pub as_of: Option<Time>,
    /// Round trip to it, as measured with its last report.
    pub round_trip: Option<Duration>,
    /// Requests forwarded to it since `as_of`, by this service and its siblings: what its report does not know of.
    pub forwarded_since: u32,
    /// Requests forwarded to it and not finished.
    pub outstanding: u32,
    /// Length of prompt, in bytes, that the index over peers holds for it.
    pub prefix_bytes: u64,
    /// Requests forwarded to it since the start.
    pub forwarded: u64,
    /// Of these, those that came back.
    pub returned: u64,
}

/// Whether requests are forwarded to a peer region, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerAvailability {
    /// They are.
    Available,
    /// It has said nothing of this pool yet.
    NeverHeard,
    /// It is not heard any more.
    Lost,
    /// Its last report is too old.
    Stale,
    /// Its last requests failed or came back; it is tried again after a while.
    Failing,
    /// A request came back from it; its next report will tell more.
    Refused,
    /// None of its replicas takes another request.
    NoReplica,
    /// It has been forwarded as many since its last report as it takes lately, next to what other regions send it.
    Paced,
    /// Its queue is too long, or is by now, with what was forwarded since its last report.
    LongQueue,
}

impl PeerAvailability {
    /// A short name for metrics and tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::NeverHeard => "never_heard",
            Self::Lost => "lost",
            Self::Stale => "stale",
            Self::Failing => "failing",
            Self::Refused => "refused",
            Self::NoReplica => "no_replica",
            Self::Paced => "paced",
            Self::LongQueue => "long_queue",
        }
    }
}

/// Where a request can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// To a replica of this region.
    Replica(ReplicaId),
    /// To a peer region.
    Peer(PeerId),
}

/// A request was placed: what a service tells its siblings, so that their indexes agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Where it was sent.
    pub target: Target,
    /// The last block of the prompt that the target was known to have before, if any.
    pub parent: Option<BlockHash>,
    /// The blocks behind that: the new part.
    pub blocks: Box<[BlockHash]>,
}
