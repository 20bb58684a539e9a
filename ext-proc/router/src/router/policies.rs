//! The policy of a pool, and after a reload the one that is to replace it.
//!
//! A policy may keep a state of its own, so a new one has to learn which replicas there are and which requests wait: thousands,
//! maybe. Each event tells it about a bounded part of the pool, and the rest is due at once. The old policy decides until then.

use core::ops::Deref;

use crate::policy::{Policy, PolicyEvent};
use crate::pool_state::PoolState;
use crate::queue::{Band, QueueSeq};
use crate::replica_index::ReplicaIndex;

/// Replicas about which one event tells a new policy, at most.
const REPLICAS_TOLD_MAX: usize = 16;
/// Requests about which one event tells a new policy, at most.
const REQUESTS_TOLD_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Policies {
    current: Box<dyn Policy>,
    successor: Option<Successor>,
}

#[derive(Debug)]
struct Successor {
    policy: Box<dyn Policy>,
    progress: Progress,
}

/// The point up to which a successor knows the pool.
#[derive(Clone, Copy, Debug)]
enum Progress {
    Replicas(ReplicaIndex),
    /// All replicas, and the requests in front of a position.
    Requests(QueueSeq),
    Everything,
}

impl Policies {
    pub(super) const fn new(current: Box<dyn Policy>) -> Self {
        Self {
            current,
            successor: None,
        }
    }

    /// Begins to replace the policy.
    pub(super) fn replace(&mut self, policy: Box<dyn Policy>) {
        let progress = Progress::Replicas(ReplicaIndex(0));
        self.successor = Some(Successor { policy, progress });
    }

    pub(super) const fn is_pending(&self) -> bool {
        self.successor.is_some()
    }

    /// Tells a successor about more of the pool. Returns whether it knows everything, and so decides from now on.
    pub(super) fn tell_more(&mut self, pool: &PoolState) -> bool {
        let Some(successor) = &mut self.successor else {
            return false;
        };
        successor.tell_more(pool);
        if !matches!(successor.progress, Progress::Everything) {
            return false;
        }
        if let Some(successor) = self.successor.take() {
            self.current = successor.policy;
        }
        true
    }

    /// Tells the policies about a change of the pool.
    pub(super) fn on_event(&mut self, event: PolicyEvent<'_>) {
        self.current.on_event(event);
        if let Some(successor) = &mut self.successor
            && !successor.is_told_later(event)
        {
            successor.policy.on_event(event);
        }
    }
}

impl Successor {
    fn tell_more(&mut self, pool: &PoolState) {
        if let Progress::Replicas(from) = self.progress {
            self.progress = self.tell_replicas(from, pool);
        }
        if let Progress::Requests(from) = self.progress {
            self.progress = self.tell_requests(from, pool);
        }
    }

    fn tell_replicas(&mut self, from: ReplicaIndex, pool: &PoolState) -> Progress {
        // A draining replica may resume.
        let all = pool.replicas.all().filter(|index| *index >= from);
        let mut all = all.filter_map(|index| Some((index, &*pool.replicas.get(index)?.name)));
        for (index, name) in all.by_ref().take(REPLICAS_TOLD_MAX) {
            self.policy.on_event(PolicyEvent::ReplicaAdded(index, name));
        }
        all.next()
            .map_or(Progress::Requests(QueueSeq::FIRST), |(index, _)| {
                Progress::Replicas(index)
            })
    }

    fn tell_requests(&mut self, from: QueueSeq, pool: &PoolState) -> Progress {
        let view = pool.view(pool.replicas.available());
        let mut waiting = pool.queue.all_from(from);
        for queued in waiting.by_ref().take(REQUESTS_TOLD_MAX) {
            if queued.band == Band::Waiting {
                self.policy.on_event(PolicyEvent::Enqueue(queued, &view));
            }
        }
        let next = waiting.next();
        next.map_or(Progress::Everything, |next| Progress::Requests(next.seq))
    }

    /// Whether the replica or request of an event is told about later.
    fn is_told_later(&self, event: PolicyEvent<'_>) -> bool {
        match (event, self.progress) {
            (PolicyEvent::Enqueue(..), Progress::Replicas(_)) => true,
            (PolicyEvent::Enqueue(queued, _), Progress::Requests(from)) => queued.seq >= from,
            (PolicyEvent::ReplicaAdded(replica, _), Progress::Replicas(from)) => replica >= from,
            _ => false,
        }
    }
}

impl Deref for Policies {
    type Target = dyn Policy;

    /// The policy that decides.
    fn deref(&self) -> &Self::Target {
        &*self.current
    }
}
