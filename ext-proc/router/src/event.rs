//! What comes into the core.

use core::time::Duration;
use std::sync::Arc;

use isotherm_fingerprint::{BlockHash, Fingerprint};
use smallvec::SmallVec;

use crate::{PeerId, PeerReport, PeerSpec, Time};

/// A request's identity, unique within one router's life; the driver numbers them upwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A replica's identity, unique within one router's life: an address that leaves and returns gets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u32);

/// Hash of a session key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(pub u64);

/// Workload tier (SageServe).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// A person waits, and expects an answer at once.
    InteractiveFast,
    /// A person waits.
    #[default]
    InteractiveNormal,
    /// Nobody waits.
    NonInteractive,
}

/// How far a request may go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// It stays in this region.
    #[default]
    Local,
    /// It may be forwarded to a peer region when this one has no room.
    Regions {
        /// Those that it has come back from, oldest first: it does not go there again.
        tried: SmallVec<[PeerId; 2]>,
    },
    /// It came from another region: it stays, and is refused at once when the queue is long.
    Forwarded,
}

/// A request that wants a replica.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its identity.
    pub id: RequestId,
    /// Its prompt.
    pub fingerprint: Arc<Fingerprint>,
    /// Its session, where one is known.
    pub session: Option<SessionKey>,
    /// Its workload tier.
    pub tier: Tier,
    /// Estimated prompt length in tokens.
    pub prompt_tokens: u32,
    /// The most output tokens that the request allows, where it says so.
    pub output_tokens_max: Option<u32>,
    /// The only replicas that may serve it, where the gateway restricts them.
    pub subset: Option<Box<[ReplicaId]>>,
    /// How far it may go.
    pub scope: Scope,
}

/// What is known of a replica when it joins.
#[derive(Clone, Debug)]
pub struct ReplicaSpec {
    /// Its stable name (its address): places it on hash rings, and orders ties.
    pub name: String,
}

/// What a probe or a load report says of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Requests accepted but not yet in the continuous batch.
    pub pending: u32,
    /// Requests in the continuous batch, where the engine tells.
    pub running: Option<u32>,
    /// Share of the KV cache in use, from 0 to 1, where the engine tells.
    pub kv_usage: Option<f32>,
    /// Capacity of the KV cache in tokens, where the engine tells.
    pub kv_capacity_tokens: Option<u64>,
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// Well: the prompt was computed, so it is in the replica's cache now.
    Answered,
    /// The request was refused (400, 413, 429): nothing was computed, and that is not the replica's failure.
    Refused,
    /// The replica's own error (5xx), or no response at all.
    Failed,
}

impl End {
    /// How a response with this HTTP status ended.
    #[must_use]
    pub const fn of_status(status: u16) -> Self {
        match status {
            200..300 => Self::Answered,
            500.. => Self::Failed,
            0..200 | 300..500 => Self::Refused,
        }
    }
}

/// Who really served a request: a retry may take it elsewhere than to the chosen replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServedBy {
    /// Nobody said; the chosen one is presumed.
    #[default]
    Unreported,
    /// This replica.
    Replica(ReplicaId),
    /// Somebody who is no replica of the pool, or not any more.
    UnknownHost,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A request arrived.
    Arrived(Request),
    /// A dispatched request's response ended.
    Finished {
        /// Which request.
        id: RequestId,
        /// Who really served it.
        served_by: ServedBy,
        /// How it ended.
        end: End,
        /// Time to first token in microseconds. Of an answer that comes whole it is not known.
        ttft_us: Option<u64>,
        /// Prompt tokens, as the engine counted them.
        prompt_tokens: Option<u32>,
        /// Prompt tokens that the engine found in its cache.
        cached_tokens: Option<u32>,
        /// Output tokens.
        completion_tokens: Option<u32>,
    },
    /// The client went away, before or after the request was dispatched.
    Aborted {
        /// Which request.
        id: RequestId,
    },
    /// A probe, or a load report, was read.
    Probed {
        /// Which replica.
        replica: ReplicaId,
        /// What it says.
        load: Load,
        /// When the probe was sent: what was pushed after that is not in `load`.
        sent: Time,
    },
    /// A probe failed or timed out.
    ProbeFailed {
        /// Which replica.
        replica: ReplicaId,
    },
    /// A replica joined. It is available after its first good probe, or at once where nothing probes it.
    Added {
        /// Its identity.
        replica: ReplicaId,
        /// What is known of it.
        spec: ReplicaSpec,
    },
    /// A replica finishes what it has and gets nothing new.
    Draining {
        /// Which replica.
        replica: ReplicaId,
    },
    /// A replica left.
    Removed {
        /// Which replica.
        replica: ReplicaId,
    },
    /// A peer region joined. It is available after its first report.
    PeerAdded {
        /// Its identity.
        peer: PeerId,
        /// What is known of it.
        spec: PeerSpec,
    },
    /// A peer region left.
    PeerRemoved {
        /// Which one.
        peer: PeerId,
    },
    /// A peer region told how this pool does there.
    PeerReported {
        /// Which one.
        peer: PeerId,
        /// What it says.
        report: PeerReport,
        /// When it was asked, by this driver's clock: what was forwarded after that is not in `report`.
        as_of: Time,
        /// How long the question and its answer took.
        round_trip: Duration,
    },
    /// A peer region is not heard any more; its next report takes it back.
    PeerLost {
        /// Which one.
        peer: PeerId,
    },
    /// A sibling, another service of this region, has placed a request.
    Shared(Placement),
    /// The driver shuts down: answer everything that waits.
    Shutdown,
}

/// Target of a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// A replica of this region.
    Replica(ReplicaId),
    /// A peer.
    Peer(PeerId),
}

/// Placement of a prompt, which services of one region share so that their indexes agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Replica or peer that got the prompt.
    pub target: Target,
    /// Last block of the prompt that the target was known to hold before.
    pub parent: Option<BlockHash>,
    /// Blocks after `parent`.
    pub blocks: Box<[BlockHash]>,
}
