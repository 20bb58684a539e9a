//! What a router says of itself to people: its replicas, and why a request would go where it would.

use core::time::Duration;

use crate::{Load, PeerAvailability, PeerId, Reason, ReplicaId, Time};

/// One replica, as the router sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaStatus {
    /// Its identity.
    pub id: ReplicaId,
    /// Its stable name.
    pub name: String,
    /// Requests sent to it and not finished.
    pub outstanding: u32,
    /// Its last load, where one is known.
    pub load: Option<Load>,
    /// When the probe that told it was sent.
    pub probed: Option<Time>,
    /// How many more requests it may be sent before its next probe; `None` where the mode does not bound it.
    pub headroom: Option<u32>,
    /// How many requests it has been seen to admit at once, where it has been seen full.
    pub capacity: Option<u32>,
    /// Length of prompt, in bytes, that the prefix index holds for it.
    pub prefix_bytes: u64,
    /// Whether it takes another request, or why not.
    pub availability: Availability,
    /// Whether it is being drained.
    pub draining: bool,
}

/// Whether a replica takes another request, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Availability {
    /// It does.
    Available,
    /// It finishes what it has and leaves.
    Draining,
    /// It has not been probed yet.
    NeverProbed,
    /// Its last probe failed.
    ProbeFailed,
    /// Its last good probe is too old.
    Stale,
    /// Its last requests failed, whatever its probes say; it is tried again after a while.
    Failing,
    /// Its last probe shows a pending request.
    Pending,
    /// What was pushed since its last probe uses up its headroom.
    NoHeadroom,
    /// As many requests are outstanding as the configuration allows.
    Full,
}

impl Availability {
    /// A short name for metrics and tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Draining => "draining",
            Self::NeverProbed => "never_probed",
            Self::ProbeFailed => "probe_failed",
            Self::Stale => "stale",
            Self::Failing => "failing",
            Self::Pending => "pending",
            Self::NoHeadroom => "no_headroom",
            Self::Full => "full",
        }
    }
}

/// Why a request would go where it would.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Every replica that may serve it, in order of name.
    pub candidates: Vec<Candidate>,
    /// Every peer region that it may be forwarded to, in order of name.
    pub peers: Vec<PeerCandidate>,
    /// What would happen to it now.
    pub choice: Choice,
}

/// One peer region, as it looks to one request.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerCandidate {
    /// Its identity.
    pub peer: PeerId,
    /// Its name.
    pub name: String,
    /// How many of the prompt's bytes the index over peers holds for it.
    pub matched_bytes: u32,
    /// Whether requests are forwarded to it, or why not.
    pub availability: PeerAvailability,
    /// How long until a first token from there, where its report tells.
    pub estimated_ttft: Option<Duration>,
}

/// One replica, as it looks to one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its identity.
    pub replica: ReplicaId,
    /// Its stable name.
    pub name: String,
    /// How many of the prompt's bytes the index holds for it.
    pub matched_bytes: u32,
    /// Requests sent to it and not finished.
    pub outstanding: u32,
    /// Pending requests at its last probe.
    pub pending: Option<u32>,
    /// Whether it takes another request, or why not.
    pub availability: Availability,
    /// What the policy thinks of it for this request; more is better, and only comparable within one explanation.
    pub score: f64,
}

/// What would happen to a request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It would be dispatched.
    Dispatch {
        /// Where to.
        replica: ReplicaId,
        /// Why there.
        reason: Reason,
    },
    /// It would be forwarded to another region.
    Forward {
        /// To which one.
        peer: PeerId,
        /// Why there.
        reason: Reason,
    },
    /// It would wait.
    Wait {
        /// For this replica, where the policy names one; else for any.
        replica: Option<ReplicaId>,
        /// How many wait in front of it.
        ahead: usize,
    },
    /// It would be refused.
    Reject {
        /// Why.
        reason: crate::RejectReason,
    },
}
