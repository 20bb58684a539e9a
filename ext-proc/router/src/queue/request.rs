//! One queued request.

use core::time::Duration;

use super::{LinePlace, QueueSeq};
use crate::replica_index::ReplicaIndex;
use crate::tenants::TenantCharge;
use crate::{Request, Tier, Time, WorkClass};

/// Time from arrival to the deadline of batch work without a deadline of its own: a day, as of the batch API.
const DEADLINE: Duration = Duration::from_secs(24 * 3_600);

/// The band of a queued request. Requests of the first band are served before those of the second one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Band {
    /// The request waits for a replica.
    #[default]
    Waiting,
    /// The gate holds the request until the pool has capacity to spare.
    Held,
}

/// Way of a request to its place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnteredBy {
    Arrived,
    /// A peer returned the request.
    Returned,
    /// The request is batch work whose deadline is near.
    Promoted,
}

/// Rounds of service that a request has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueTurns {
    /// Number of later requests that a freed replica took instead.
    pub(crate) overtaken: u32,
    /// The last round that asked the request and let it wait.
    pub(crate) asked_in: u64,
}

/// A request from its arrival to its dispatch, in the queue or on the way through it.
#[derive(Clone, Debug)]
pub struct QueuedRequest {
    pub(crate) seq: QueueSeq,
    /// Position in the line of its band, while the request is in the queue.
    pub(crate) place: LinePlace,
    pub(crate) band: Band,
    pub(crate) request: Request,
    /// Prompt tokens, by the estimate of the filter; `request` has them by the learned length of a token.
    pub(crate) estimated_tokens: u32,
    pub(crate) arrived: Time,
    /// The time from which the request's waits count: its arrival, or its promotion.
    pub(crate) entered: Time,
    pub(crate) charge: TenantCharge,
    pub(crate) entered_by: EnteredBy,
    /// Whether the prompt takes longer to compute than the SLO, so that the request is past it in any case.
    pub(crate) is_long_prompt: bool,
    pub(crate) turns: QueueTurns,
    /// The replicas that may serve the request, where the gateway or its adapter restricts them.
    pub(crate) pinned: Option<Box<[ReplicaIndex]>>,
    /// The replica that the request waits for, although others may be free.
    pub(crate) preferred: Option<ReplicaIndex>,
    /// Time since which the request waits for its preferred replica while others are free.
    pub(crate) delayed_since: Option<Time>,
}

impl QueuedRequest {
    /// Position in the order of arrival, which identifies the request while it waits.
    #[must_use]
    pub const fn seq(&self) -> QueueSeq {
        self.seq
    }

    /// The request itself.
    #[must_use]
    pub const fn request(&self) -> &Request {
        &self.request
    }

    /// The only replicas that may serve the request, where the gateway or its adapter restricts them.
    #[must_use]
    pub fn pinned(&self) -> Option<&[ReplicaIndex]> {
        self.pinned.as_deref()
    }

    /// The replica that the request waits for, although others may be free.
    #[must_use]
    pub const fn preferred(&self) -> Option<ReplicaIndex> {
        self.preferred
    }

    /// Time by which batch work is to be served.
    pub(crate) fn deadline(&self) -> Time {
        let own = self.request.deadline;
        own.unwrap_or_else(|| self.arrived.after(DEADLINE))
    }

    /// Whether the request has been in the queue before: a full queue does not reject it.
    pub(crate) const fn is_requeued(&self) -> bool {
        !matches!(self.entered_by, EnteredBy::Arrived)
    }

    /// The tier whose rules apply to the wait: a promoted batch request waits as an interactive one.
    pub(crate) const fn waits_as(&self) -> Tier {
        match (self.band, self.request.tier) {
            (Band::Held, _) => Tier::NonInteractive,
            (Band::Waiting, Tier::InteractiveFast) => Tier::InteractiveFast,
            (Band::Waiting, Tier::InteractiveNormal | Tier::NonInteractive) => {
                Tier::InteractiveNormal
            }
        }
    }

    /// The class of the request, if it is dispatched now.
    pub(crate) const fn class(&self) -> WorkClass {
        match self.band {
            Band::Waiting => WorkClass::Interactive,
            Band::Held => WorkClass::Batch,
        }
    }
}
