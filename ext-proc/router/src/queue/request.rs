//! One queued request, and its position.

use core::cell::Cell;

use crate::index::PrefixMatch;
use crate::replica_index::ReplicaIndex;
use crate::tenants::TenantSlot;
use crate::{Request, Time};

/// A request's position in the order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueSeq(pub(super) u64);

#[derive(Clone, Debug)]
pub(crate) struct QueuedRequest {
    pub(crate) seq: QueueSeq,
    pub(crate) request: Request,
    /// Prompt tokens, by the estimate of the filter; `request` has them by the learned length of a token.
    pub(crate) estimated_tokens: u32,
    pub(crate) arrived: Time,
    pub(crate) tenant: TenantSlot,
    /// Whether the request returned from a peer. A full queue does not reject it.
    pub(crate) has_returned: bool,
    /// Whether the prompt takes longer to compute than the SLO, so that the request is past it in any case.
    pub(crate) is_long_prompt: bool,
    /// Number of later requests that went first to a replica which this request would have taken.
    pub(crate) overtaken: u32,
    /// The replicas that may serve the request, where the gateway or its adapter restricts them.
    pub(crate) pinned: Option<Box<[ReplicaIndex]>>,
    /// The replica that the request waits for, although others may be free.
    pub(crate) preferred: Option<ReplicaIndex>,
    /// Since when the request waits for a particular replica while others are free.
    pub(crate) delayed_since: Option<Time>,
    /// The replica whose cache suits the request best, where the policy named one when the request began to wait.
    pub(crate) affinity: Option<ReplicaIndex>,
    /// The longest known prefix of the prompt at the last lookup, where the next one begins.
    pub(crate) known: Cell<PrefixMatch>,
}

/// Wait of a request so far, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitTimes {
    /// Time since the request arrived.
    pub(crate) waited_s: f64,
    /// Time that the request has waited for a particular replica while others were free.
    pub(crate) delayed_s: f64,
}

impl QueuedRequest {
    pub(crate) fn waited(&self, now: Time) -> WaitTimes {
        let since = |then: Time| now.since(then).as_secs_f64();
        WaitTimes {
            waited_s: since(self.arrived),
            delayed_s: self.delayed_since.map_or(0.0, since),
        }
    }
}

impl QueueSeq {
    /// In front of all requests.
    pub(crate) const FIRST: Self = Self(0);

    /// Behind all requests.
    pub(crate) const LAST: Self = Self(u64::MAX);

    /// The position behind this one.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}
