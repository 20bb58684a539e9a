//! Queued requests whose candidates have changed: replicas joined, left, or are unusable.
//!
//! Each arrival checks a bounded number of requests and goes on behind the last ones. A request that a replica is freed for
//! before its turn gets its candidates then.

use super::candidate_queues::QueuePosition;
use super::{DualMap, is_usable};
use crate::policy::View;
use crate::queue::QueueSeq;

/// Requests that one arrival checks after a change of the rings, and in the queues of unusable replicas.
const CHECKED_MAX: usize = 64;

/// The requests that are still to be checked.
#[derive(Debug, Default)]
pub(super) struct Recheck {
    /// The first request that was not checked since the rings changed; `None` when all were.
    rings: Option<QueueSeq>,
    /// The request of an unusable replica at which the next check begins.
    unusable: QueuePosition,
}

impl Recheck {
    /// Registers a change of the rings.
    pub(super) const fn rings_changed(&mut self) {
        self.rings = Some(QueueSeq::FIRST);
    }
}

impl DualMap {
    /// Assigns another candidate to the requests whose candidates have changed or whose replica is unusable.
    pub(super) fn reassign(&mut self, view: &View<'_>) {
        if view.replicas.trusted().is_empty() {
            // There is no usable replica; the next arrival tries again.
            return;
        }
        for seq in self.due_for_check(view) {
            let entry = self.queues.get(seq).copied();
            if let Some(queued) = view.queue.get(seq)
                && let Some(pair) = self.pair(&queued.request, view)
                && entry.is_some_and(|entry| entry.pair != pair)
            {
                self.assign(seq, &queued.request, pair, view);
            }
        }
    }

    /// The requests that are checked now.
    pub(super) fn due_for_check(&mut self, view: &View<'_>) -> Vec<QueueSeq> {
        let mut due = Vec::new();
        if let Some(from) = self.recheck.rings {
            due.extend(self.queues.all_from(from).take(CHECKED_MAX));
            let is_over = due.len() < CHECKED_MAX;
            let last = due.last().filter(|_| !is_over);
            self.recheck.rings = last.map(|last| last.next());
        }
        let is_unusable = |replica| !is_usable(replica, view);
        let of_unusable = self.queues.all_of(self.recheck.unusable, is_unusable);
        let of_unusable: Vec<QueuePosition> = of_unusable.take(CHECKED_MAX).collect();
        let last = of_unusable.last();
        let last = last.filter(|_| of_unusable.len() >= CHECKED_MAX);
        self.recheck.unusable = last.map_or_else(QueuePosition::default, |(replica, seq)| {
            (*replica, seq.next())
        });
        due.extend(of_unusable.into_iter().map(|(_, seq)| seq));
        due
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;
    use std::sync::Arc;

    use isotherm_fingerprint::Fingerprint;

    use super::*;
    use crate::policy::{Policy, PolicyEvent};
    use crate::pool_state::PoolState;
    use crate::queue::QueuedRequest;
    use crate::replica::Replica;
    use crate::replica_index::ReplicaIndex;
    use crate::{Push, ReplicaId, Request, RequestId, Role, RouterConfig, Scope, Tier};

    /// A pool of three replicas, with so many requests that only the first replica may serve.
    fn with_queued(requests: u64) -> (PoolState, DualMap) {
        let config = RouterConfig {
            push: Push::Outstanding { max: 1 },
            ..RouterConfig::default()
        };
        let (mut pool, mut policy) = (PoolState::new(config, 1), DualMap::default());
        for id in 0..3 {
            let index = pool.index.join().unwrap();
            let name = id.to_string();
            policy.on_event(PolicyEvent::ReplicaAdded(index, &name));
            let replica = Replica::new(ReplicaId(id), name, Role::Both);
            pool.replicas.add(index, replica, pool.now);
        }
        for id in 0..requests {
            let queued = QueuedRequest {
                estimated_tokens: 0,
                tokens: 0,
                seq: pool.queue.next_seq(),
                request: request(id),
                arrived: pool.now,
                entered: pool.now,
                place: crate::queue::LinePlace::LAST,
                band: crate::queue::Band::Waiting,
                tenant: crate::tenants::TenantSlot::UNTRACKED,
                has_returned: false,
                is_promoted: false,
                is_long_prompt: false,
                overtaken: 0,
                pinned: Some([ReplicaIndex(0)].into()),
                preferred: None,
                delayed_since: None,
                affinity: None,
                known: Cell::default(),
            };
            pool.queue.push(queued.clone());
            let view = pool.view(pool.replicas.available());
            policy.on_event(PolicyEvent::Enqueue(&queued, &view));
        }
        (pool, policy)
    }

    fn request(id: u64) -> Request {
        Request {
            id: RequestId(id),
            fingerprint: Arc::new(Fingerprint::default()),
            session: None,
            tier: Tier::default(),
            ttft_slo: None,
            deadline: None,
            prompt_tokens: 0,
            output_tokens_max: None,
            previous_response: None,
            subset: None,
            adapter: None,
            scope: Scope::default(),
            tenant: crate::TenantId::default(),
            tells_start: false,
            api: None,
            wants_stream: false,
        }
    }

    fn due(policy: &mut DualMap, pool: &PoolState) -> usize {
        let view = pool.view(pool.replicas.available());
        policy.due_for_check(&view).len()
    }

    #[test]
    fn an_arrival_checks_a_bounded_number_of_requests_while_their_replica_is_ill() {
        let (mut pool, mut policy) = with_queued(200);
        let after_the_rings = [(); 4].map(|()| due(&mut policy, &pool));
        assert_eq!(after_the_rings, [64, 64, 64, 8]);
        assert_eq!(due(&mut policy, &pool), 0, "all replicas are well");
        pool.replicas.probe_failed(ReplicaId(0), pool.now);
        let while_ill = [(); 5].map(|()| due(&mut policy, &pool));
        assert_eq!(while_ill, [64, 64, 64, 8, 64], "in turn, and again");
    }
}
