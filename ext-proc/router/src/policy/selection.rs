//! Answers of a policy, and the events that it may follow.

use super::View;
use crate::index::PrefixMatch;
use crate::queue::{QueueSeq, QueuedRequest};
use crate::replica_index::ReplicaIndex;
use crate::{Load, Reason, Request, Time};

/// Where a request should go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Selection {
    /// The request goes to this candidate now.
    Dispatch(Dispatch),
    /// The request waits for this replica, although others are free. The router bounds the wait.
    WaitFor(ReplicaIndex),
}

impl Selection {
    /// A dispatch to this candidate; `matched` as in [`Dispatch::matched`].
    pub const fn to(replica: ReplicaIndex, reason: Reason, matched: Option<PrefixMatch>) -> Self {
        Self::Dispatch(Dispatch {
            replica,
            reason,
            matched,
        })
    }
}

/// A replica, selected for a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dispatch {
    /// The selected replica.
    pub replica: ReplicaIndex,
    /// The reason, for metrics and explanations.
    pub reason: Reason,
    /// The part of the prompt that the replica holds, where the policy looked it up. Otherwise the router does.
    pub matched: Option<PrefixMatch>,
}

/// The rules that the router applies on behalf of a policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct PolicyRules {
    /// Whether a queued request goes to the candidates of the policy only, until it has waited too long.
    pub is_bound_to_candidates: bool,
    /// Whether [`super::Policy::worth`] tells waiting requests apart.
    pub weighs_requests: bool,
    /// Whether requests past the SLO come behind the others, which are then served in time under overload.
    pub past_slo_last: bool,
    /// Whether the session alone decides. A warm cache in a peer region then attracts no request.
    pub ignores_prefixes: bool,
}

/// A change that a policy with state may follow. The candidates of a view are all available replicas, maybe none.
///
/// A policy that begins by a reload hears of all replicas at once, and not of the requests that wait already.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum PolicyEvent<'a> {
    /// A request arrived; [`super::Policy::select_replica`] has been asked already.
    Arrival(&'a Request, &'a View<'a>),
    /// A request enters the queue.
    Enqueue(&'a QueuedRequest, &'a View<'a>),
    /// A request leaves the queue, dispatched or not.
    Dequeue(QueueSeq),
    /// A replica gets a request, or a prefill replica a prompt.
    Dispatch(ReplicaIndex),
    /// A replica joins the pool, with its name. The index of a replica that left may come again.
    ReplicaAdded(ReplicaIndex, &'a str),
    /// A replica leaves the pool.
    ReplicaRemoved(ReplicaIndex),
    /// A probe shows the load of a replica, as of the time when it was sent.
    Probed(ReplicaIndex, &'a Load, Time),
    /// A replica wrote the first token of an answer, or finished a prefill, at this time. An answer may tell it when it ends.
    FirstToken(ReplicaIndex, Time),
}
