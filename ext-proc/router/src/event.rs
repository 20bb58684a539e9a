//! Events: the input of the core.

use core::time::Duration;
use std::sync::Arc;

use isotherm_fingerprint::{Api, BlockHash, Fingerprint};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::{EngineCounters, PeerId, PeerReport, Role, Time};

/// Identity of a request, unique within the life of a router; the driver numbers requests upwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Identity of a replica, unique within the life of a router. An address that leaves and returns gets a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u32);

/// Hash of a session key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(pub u64);

/// Hash of the id of a stored response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResponseKey(pub u64);

/// Hash of an adapter's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdapterKey(pub u64);

/// Hash of a tenant's name; 0 for the common tenant, of requests without a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u64);

/// Adapters of a replica's requests, as its metrics page names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdapterReport {
    /// Adapters that the replica serves at a time, if it reports that.
    pub slots: Option<u32>,
    /// Adapters of running requests.
    pub running: Vec<AdapterKey>,
    /// Adapters of waiting requests.
    pub waiting: Vec<AdapterKey>,
}

/// Workload tier (SageServe).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// A person waits, and expects an answer at once.
    InteractiveFast,
    /// A person waits.
    #[default]
    InteractiveNormal,
    /// No user waits.
    NonInteractive,
}

/// Regions that may serve a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// This region only.
    #[default]
    Local,
    /// This region or a peer.
    Regions {
        /// Peers that the request has returned from, oldest first. The request is not forwarded to them again.
        tried: SmallVec<[PeerId; 2]>,
    },
    /// A request forwarded from another region: this region only, and rejected at once when the queue is long.
    Forwarded,
}

/// A request that wants a replica.
#[derive(Clone, Debug)]
pub struct Request {
    /// Identity.
    pub id: RequestId,
    /// Fingerprint of the prompt.
    pub fingerprint: Arc<Fingerprint>,
    /// Hash of the session key, if the request has one.
    pub session: Option<SessionKey>,
    /// The stored response that the request continues, if it continues one.
    pub previous_response: Option<ResponseKey>,
    /// Tenant that sent the request.
    pub tenant: TenantId,
    /// Workload tier; without effect in a pool without [`crate::TierRules`].
    pub tier: Tier,
    /// The request's own budget for its first token; `None` for that of its tier. Without effect in a pool without tiers.
    pub ttft_slo: Option<Duration>,
    /// Time by which a batch request is to be served, if it has one. The request is promoted in time, and is served after the
    /// deadline, too.
    pub deadline: Option<Time>,
    /// Estimated prompt length in tokens.
    pub prompt_tokens: u32,
    /// Limit of output tokens, if the request has one.
    pub output_tokens_max: Option<u32>,
    /// The only replicas that may serve the request, if the gateway restricts them.
    pub subset: Option<Box<[ReplicaId]>>,
    /// Adapter that the request names, if it names one.
    pub adapter: Option<AdapterKey>,
    /// Regions that may serve the request.
    pub scope: Scope,
    /// Whether the driver sends [`Event::Began`] when the response begins. Only then is a request without it one without a
    /// response.
    pub tells_start: bool,
    /// API of the request, if it is one with a prompt.
    pub api: Option<Api>,
    /// Whether the client asks for a streamed response, so that the response begins when the prompt is computed.
    pub wants_stream: bool,
}

impl Request {
    /// Peers that have returned the request; `None` for a request that must not leave the region, as one with a subset.
    pub(crate) fn tried(&self) -> Option<&[PeerId]> {
        match &self.scope {
            Scope::Regions { tried } if self.subset.is_none() => Some(tried),
            Scope::Regions { .. } | Scope::Local | Scope::Forwarded => None,
        }
    }

    /// Estimated number of prompt tokens to compute where the first `depth` blocks of the prompt are cached.
    #[must_use]
    pub fn uncached_tokens(&self, depth: usize) -> f64 {
        let share = self.fingerprint.share_at(depth).clamp(0.0, 1.0);
        f64::from(self.prompt_tokens) * (1.0 - share)
    }
}

/// Load of a replica, from a probe or a load report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Requests accepted but not yet in the continuous batch.
    pub pending: u32,
    /// Requests in the continuous batch, if the engine reports it.
    pub running: Option<u32>,
    /// Share of the KV cache in use, from 0 to 1, if the engine reports it.
    pub kv_usage: Option<f32>,
    /// Capacity of the KV cache in tokens, if the engine reports it.
    pub kv_capacity_tokens: Option<u64>,
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// Success: the prompt was computed and is in the replica's cache.
    Answered,
    /// The engine rejected the request (400, 413, 429), or does not support it (501, 505): nothing was computed, and the
    /// replica is not at fault.
    Refused,
    /// Internal server error (500): the replica is at fault, or this request, which fails on each replica.
    Errored,
    /// Another server error (502, 503, 504), or no response.
    Failed,
    /// The replica broke: its connection ended after it got the request and before the response began.
    Broke,
    /// A timeout of the gateway ended the request. The replica may be slow, or the timeout short.
    TimedOut,
    /// The gateway responded without sending the request: by a rate limit, or for want of a route or a host.
    Unsent,
}

impl End {
    /// The end of a response with this HTTP status.
    #[must_use]
    pub const fn of_status(status: u16) -> Self {
        match status {
            200..300 => Self::Answered,
            500 => Self::Errored,
            // Answers to a feature or a protocol that the engine does not have.
            0..200 | 300..500 | 501 | 505..=511 => Self::Refused,
            502..=504 | 512.. => Self::Failed,
        }
    }
}

/// The host that served a request: Envoy may retry on another one than the selected replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServedBy {
    /// Not reported; the selected replica is presumed.
    #[default]
    Unreported,
    /// A replica of the pool.
    Replica(ReplicaId),
    /// A host that is not, or no longer, a replica of the pool.
    UnknownHost,
    /// The host of the first attempt, which is another one than the selected replica, with its replica if it is one. A route or
    /// a cluster of the gateway overrides the selection.
    Overridden(Option<ReplicaId>),
}

impl ServedBy {
    /// The replica that served, where the router selected this one; `None` for a host that is no replica of the pool.
    pub(crate) const fn server(self, selected: ReplicaId) -> Option<ReplicaId> {
        match self {
            Self::Unreported => Some(selected),
            Self::Replica(replica) => Some(replica),
            Self::UnknownHost => None,
            Self::Overridden(other) => other,
        }
    }
}

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// A request arrived.
    Arrived(Request),
    /// A dispatched request's response ended.
    Finished {
        /// Request.
        id: RequestId,
        /// Host that served it.
        served_by: ServedBy,
        /// How the response ended.
        end: End,
        /// Time to first token in microseconds; unknown for a response that is not streamed.
        ttft_us: Option<u64>,
        /// Prompt tokens, as the engine counted them.
        prompt_tokens: Option<u32>,
        /// Prompt tokens that the engine found in its cache.
        cached_tokens: Option<u32>,
        /// Output tokens.
        completion_tokens: Option<u32>,
    },
    /// The first token of the response to a dispatched request came: the replica has admitted the request, and its prompt is
    /// computed. Without this event, the end of the request stands for both.
    Began(RequestId),
    /// The host that served a dispatched request may store its response: later requests may name it.
    Stored(RequestId, ServedBy, ResponseKey),
    /// The client disconnected, before or after the dispatch.
    Aborted(RequestId),
    /// A probe or a load report arrived.
    Probed {
        /// Replica.
        replica: ReplicaId,
        /// Load that it reports.
        load: Load,
        /// Time when the probe was sent; requests dispatched later are not in `load`.
        sent: Time,
    },
    /// A probe failed or timed out.
    ProbeFailed(ReplicaId),
    /// A replica listed the adapters that it can serve.
    AdaptersListed {
        /// Replica.
        replica: ReplicaId,
        /// All of its adapters; at most [`crate::ADAPTERS_LISTED_MAX`] of them count.
        adapters: Vec<AdapterKey>,
    },
    /// A probe reported the adapters of a replica's requests.
    AdaptersReported {
        /// Replica.
        replica: ReplicaId,
        /// Report.
        report: AdapterReport,
        /// Time when the probe was sent; requests dispatched later are not in `report`.
        sent: Time,
    },
    /// A probe was answered without metrics of a known engine. Under the push rule `pending`, the replica's outstanding requests
    /// then decide whether it is available.
    AnsweredWithoutMetrics {
        /// Replica.
        replica: ReplicaId,
        /// Time when the probe was sent.
        sent: Time,
    },
    /// A probe reported the counters of a replica's engine.
    CountersReported {
        /// Replica.
        replica: ReplicaId,
        /// Counters.
        counters: EngineCounters,
        /// Time when the probe was sent.
        sent: Time,
    },
    /// A replica was added. It is available after its first good probe, or at once if nothing probes it.
    Added {
        /// Identity of the replica.
        replica: ReplicaId,
        /// Stable name, the address: its place on hash rings, and the order of ties.
        name: String,
        /// The part of a request that the replica serves.
        role: Role,
    },
    /// The role of a replica changed. What is known of its process still holds.
    RoleChanged(ReplicaId, Role),
    /// A replica drains: it finishes its requests and gets no new ones.
    Draining(ReplicaId),
    /// A draining replica gets requests again. What is known of its process still holds. A request that is restricted
    /// to some replicas and waits does not go to the replica: it keeps to the replicas that stayed since its arrival.
    Resumed(ReplicaId),
    /// The cache of a replica was emptied, as after new weights. Its requests in flight go on.
    CacheEmptied(ReplicaId),
    /// A replica was removed.
    Removed(ReplicaId),
    /// A peer was added. It is available after its first report.
    PeerAdded {
        /// Identity of the peer. A peer that was removed and returns has another one.
        peer: PeerId,
        /// Stable name, which places the peer on the hash ring.
        name: String,
    },
    /// A peer was removed.
    PeerRemoved(PeerId),
    /// A peer reported the state of its pool.
    PeerReported {
        /// Peer.
        peer: PeerId,
        /// Report.
        report: PeerReport,
        /// Time of the request for the report, by this driver's clock; requests forwarded later are not in `report`.
        as_of: Time,
        /// Time from that request to its reply.
        round_trip: Duration,
    },
    /// A peer is lost; its next report restores it.
    PeerLost(PeerId),
    /// A sibling shared a placement.
    Shared(Placement),
    /// The driver shuts down; every waiting request is rejected.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement<T = Target> {
    /// Replica or peer that got the prompt.
    pub target: T,
    /// Last block of the prompt that the target was known to hold before.
    pub parent: Option<BlockHash>,
    /// Blocks after `parent`.
    pub blocks: Box<[BlockHash]>,
    /// Prompt tokens that the target has to compute, by estimate; `None` if the sibling did not tell them.
    pub uncached_tokens: Option<u32>,
}

impl<T> Placement<T> {
    /// Returns the placement with its target in other terms; `None` if there are none for it.
    pub fn translate<U>(self, target: impl FnOnce(T) -> Option<U>) -> Option<Placement<U>> {
        Some(Placement {
            target: target(self.target)?,
            parent: self.parent,
            blocks: self.blocks,
            uncached_tokens: self.uncached_tokens,
        })
    }
}
