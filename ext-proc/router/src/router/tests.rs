//! The bounds that the router keeps under every policy, here with one that lets requests wait for a busy replica.

mod bounds;
mod entitled;
mod tenants;

use core::time::Duration;
use std::sync::Arc;

use super::*;
use crate::policy::{Dispatch, Selection, View};
use crate::replica_index::ReplicaIndex;
use crate::{
    End, Load, PolicyFactory, Push, Reason, ReplicaId, Request, RequestId, Scope, ServedBy,
    SessionKey, Tier,
};

/// Sends each session to the replica of its number, and lets it wait for that one while it is busy.
#[derive(Clone, Debug)]
struct SessionAffinity;

impl Policy for SessionAffinity {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let replica = ReplicaIndex(u16::try_from(request.session?.0).ok()?);
        Some(if view.candidates.contains(replica) {
            Selection::Dispatch(Dispatch {
                replica,
                reason: Reason::Ring,
                matched: None,
            })
        } else {
            Selection::WaitFor(replica)
        })
    }

    fn score(&self, _request: &Request, _replica: ReplicaIndex, _view: &View<'_>) -> f64 {
        0.0
    }
}

/// The least a policy has to say.
#[derive(Debug)]
struct LeastLoaded;

impl Policy for LeastLoaded {
    fn select_replica(&self, _request: &Request, view: &View<'_>) -> Option<Selection> {
        let replica = view.least_loaded(&[])?;
        Some(Selection::to(replica, Reason::LeastLoaded, None))
    }

    fn score(&self, _request: &Request, _replica: ReplicaIndex, _view: &View<'_>) -> f64 {
        0.0
    }
}

fn request(id: u64, session: u64) -> Request {
    Request {
        id: RequestId(id),
        fingerprint: Arc::default(),
        session: Some(SessionKey(session)),
        tier: Tier::default(),
        ttft_slo: None,
        deadline: None,
        prompt_tokens: 10,
        output_tokens_max: None,
        previous_response: None,
        subset: None,
        adapter: None,
        scope: Scope::default(),
        tenant: crate::TenantId::default(),
        tells_start: false,
        api: None,
        wants_stream: true,
    }
}

/// Two replicas that take one request each.
fn affinity_pair() -> Router {
    pool(2, Push::Outstanding { max: 1 }, SessionAffinity)
}

/// A pool of this many replicas under a policy.
fn pool(replicas: u32, push: Push, policy: impl Policy + Clone + Sync + 'static) -> Router {
    let config = RouterConfig {
        policy: PolicyFactory::new("of the test", move |_| Box::new(policy.clone())),
        push,
        ..RouterConfig::default()
    };
    let mut router = Router::new(config, 0);
    for id in 0..replicas {
        let name = format!("r{id}");
        let replica = ReplicaId(id);
        router.handle(
            Time::ZERO,
            Event::Added {
                replica,
                name,
                role: crate::Role::Both,
            },
        );
    }
    router
}

fn arrive(router: &mut Router, id: u64, session: u64) {
    router.handle(Time::ZERO, Event::Arrived(request(id, session)));
}

fn finish(router: &mut Router, id: u64) {
    finish_at(router, Time::ZERO, id);
}

fn finish_at(router: &mut Router, now: Time, id: u64) {
    let id = RequestId(id);
    router.handle(
        now,
        Event::Finished {
            id,
            served_by: ServedBy::Unreported,
            end: End::Answered,
            ttft_us: None,
            prompt_tokens: None,
            cached_tokens: None,
            completion_tokens: None,
        },
    );
}

/// (request, replica) of what was dispatched.
fn dispatched(router: &mut Router) -> Vec<(u64, u32)> {
    core::iter::from_fn(|| router.poll_effect())
        .filter_map(|effect| match effect {
            Effect::Dispatch(id, decision) => Some((id.0, decision.replica.0)),
            Effect::Forward(..) | Effect::Reject { .. } | Effect::Hung { .. } => None,
        })
        .collect()
}

#[test]
fn a_request_may_wait_for_its_affinity_replica_while_others_are_free() {
    let mut router = affinity_pair();
    arrive(&mut router, 1, 0);
    arrive(&mut router, 2, 0);
    arrive(&mut router, 3, 1);
    assert_eq!(dispatched(&mut router), [(1, 0), (3, 1)]);
    finish(&mut router, 3);
    assert_eq!(dispatched(&mut router), [], "2 waits for replica 0");
    finish(&mut router, 1);
    assert_eq!(dispatched(&mut router), [(2, 0)]);
}

#[test]
fn a_freed_replica_does_not_idle_beside_a_long_queue_for_another_one() {
    let mut router = affinity_pair();
    for id in 0..500 {
        arrive(&mut router, id, 0);
    }
    assert_eq!(dispatched(&mut router), [(0, 0)]);
    let next = router.poll_timeout().unwrap();
    assert!(next <= Time::ZERO.after(Duration::from_millis(50)));
    router.handle_timeout(next);
    assert_eq!(
        dispatched(&mut router),
        [(1, 1)],
        "the oldest has to take it"
    );
}

#[test]
fn a_queue_for_one_replica_does_not_hold_up_another() {
    let mut router = affinity_pair();
    for id in 0..10 {
        arrive(&mut router, id, 0);
    }
    arrive(&mut router, 10, 1);
    arrive(&mut router, 11, 1);
    assert_eq!(dispatched(&mut router), [(0, 0), (10, 1)]);
    finish(&mut router, 10);
    assert_eq!(dispatched(&mut router), [(11, 1)]);
}

#[test]
fn a_request_that_waits_for_its_affinity_replica_is_not_forwarded_while_others_are_free() {
    let mut router = affinity_pair();
    let peer = crate::PeerId(0);
    let name = "eu".into();
    router.handle(Time::ZERO, Event::PeerAdded { peer, name });
    router.handle(
        Time::ZERO,
        Event::PeerReported {
            peer,
            report: crate::PeerReport {
                available: 1,
                replicas: 1,
                free_capacity: 9,
                ..crate::PeerReport::default()
            },
            as_of: Time::ZERO,
            round_trip: Duration::ZERO,
        },
    );
    let forwardable = |id, session| Request {
        scope: Scope::Regions {
            tried: smallvec::SmallVec::new(),
        },
        ..request(id, session)
    };
    arrive(&mut router, 1, 0);
    router.handle(Time::ZERO, Event::Arrived(forwardable(2, 0)));
    assert_eq!(dispatched(&mut router), [(1, 0)]);
    assert_eq!(router.stats(Time::ZERO).queue_length, 1);
    let explained = router.explain(Time::ZERO, &forwardable(3, 0)).choice;
    assert!(matches!(explained, crate::Choice::Wait { .. }));
    arrive(&mut router, 4, 1);
    assert_eq!(router.stats(Time::ZERO).counters.forwarded, 1);
}
