//! Queued requests whose candidates have changed: replicas joined, left, or are unusable.
//!
//! Each arrival checks a bounded number of requests and goes on behind the last ones. A request that a replica is freed for
//! before its turn gets its candidates then.

use super::candidate_queues::QueuePosition;
use super::{DualMap, is_usable};
use isotherm_router::{QueueSeq, View};

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
        if view.trusted().is_empty() {
            // There is no usable replica; the next arrival tries again.
            return;
        }
        for seq in self.due_for_check(view) {
            let entry = self.queues.get(seq).copied();
            if let Some(queued) = view.queued_at(seq)
                && let Some(pair) = self.pair(queued.request(), view)
                && entry.is_some_and(|entry| entry.pair != pair)
            {
                self.assign(seq, queued.request(), pair, view);
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
    use std::sync::{Arc, Mutex};

    use isotherm_router::{
        Event, Load, Policy, PolicyEvent, PolicyFactory, Push, ReplicaId, ReplicaIndex, Request,
        RequestId, Role, Router, RouterConfig, Scope, Selection, TenantId, Tier, Time,
    };

    use super::*;

    /// `dual_map`, which on each arrival counts the requests that it would check.
    #[derive(Debug)]
    struct Counting(DualMap, Arc<Mutex<Vec<usize>>>);

    impl Policy for Counting {
        fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
            self.0.select_replica(request, view)
        }

        fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
            self.0.score(request, replica, view)
        }

        fn on_event(&mut self, event: PolicyEvent<'_>) {
            if let PolicyEvent::Arrival(_, view) = event {
                let due = self.0.due_for_check(view).len();
                self.1.lock().unwrap().push(due);
            } else {
                self.0.on_event(event);
            }
        }
    }

    /// A request that only one replica may serve.
    fn request(id: u64, replica: u32) -> Request {
        Request {
            id: RequestId(id),
            fingerprint: Arc::default(),
            session: None,
            tier: Tier::default(),
            ttft_slo: None,
            deadline: None,
            prompt_tokens: 0,
            output_tokens_max: None,
            previous_response: None,
            subset: Some([ReplicaId(replica)].into()),
            adapter: None,
            scope: Scope::default(),
            tenant: TenantId::default(),
            tells_start: false,
            api: None,
            wants_stream: false,
        }
    }

    fn join(router: &mut Router, id: u32) {
        let replica = ReplicaId(id);
        let (name, role) = (id.to_string(), Role::Both);
        let added = Event::Added {
            replica,
            name,
            role,
        };
        router.handle(Time::ZERO, added);
        let probed = Event::Probed {
            replica,
            load: Load::default(),
            sent: Time::ZERO,
        };
        router.handle(Time::ZERO, probed);
    }

    #[test]
    fn an_arrival_checks_a_bounded_number_of_requests_while_their_replica_is_ill() {
        let counts = Arc::new(Mutex::new(Vec::new()));
        let of_policy = Arc::clone(&counts);
        let config = RouterConfig {
            policy: PolicyFactory::new("counting", move |_| {
                Box::new(Counting(DualMap::default(), Arc::clone(&of_policy)))
            }),
            push: Push::Outstanding { max: 1 },
            ..RouterConfig::default()
        };
        let mut router = Router::new(config, 1);
        (0..3).for_each(|id| join(&mut router, id));
        // One request occupies each of the first two replicas, and 200 wait for the first one.
        for (id, replica) in (0..).zip([0, 1].into_iter().chain([0; 200])) {
            router.handle(Time::ZERO, Event::Arrived(request(id, replica)));
        }
        join(&mut router, 3);
        let mut ids = 1_000..;
        let mut checked = |router: &mut Router, arrivals: usize| {
            counts.lock().unwrap().clear();
            for id in ids.by_ref().take(arrivals) {
                router.handle(Time::ZERO, Event::Arrived(request(id, 1)));
            }
            counts.lock().unwrap().clone()
        };
        assert_eq!(checked(&mut router, 4), [64, 64, 64, 11], "after the rings");
        assert_eq!(checked(&mut router, 1), [0], "all replicas are well");
        router.handle(Time::ZERO, Event::ProbeFailed(ReplicaId(0)));
        let while_ill = checked(&mut router, 5);
        assert_eq!(while_ill, [64, 64, 64, 8, 64], "in turn, and again");
    }
}
