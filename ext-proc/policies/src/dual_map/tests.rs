//! The policy as a whole, in a router: the choice of two candidates, the queues, and the moves between them.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use isotherm_fingerprint::{BlockHash, Fingerprint};
use isotherm_router::{
    Choice, Effect, End, Event, Load, Push, Reason, ReplicaId, Request, RequestId, Role, Router,
    RouterConfig, Scope, ServedBy, TenantId, Tier, Time,
};

use crate::PolicyName;

/// Tokens in one block of a prompt: a tenth of a second, as presumed as long as nothing was measured.
const BLOCK_TOKENS: u32 = 1_000;

/// A router with this policy, the time, and what it did.
struct Pool {
    router: Router,
    now: Time,
    next: u64,
}

impl Pool {
    fn new(push: Push, replicas: u32) -> Self {
        Self::with_slo(push, replicas, 1)
    }

    fn with_slo(push: Push, replicas: u32, ttft_slo_s: u64) -> Self {
        let config = RouterConfig {
            policy: PolicyName::DualMap.into(),
            push,
            ttft_slo: Duration::from_secs(ttft_slo_s),
            ..RouterConfig::default()
        };
        let mut pool = Self {
            router: Router::new(config, 1),
            now: Time::ZERO,
            next: 0,
        };
        for id in 0..replicas {
            pool.join(id);
        }
        pool
    }

    fn join(&mut self, id: u32) {
        let name = format!("10.0.0.{id}:8000");
        let replica = ReplicaId(id);
        self.event(Event::Added {
            replica,
            name,
            role: Role::Both,
        });
        self.probe(id, 0);
    }

    fn event(&mut self, event: Event) {
        self.router.handle(self.now, event);
    }

    fn probe(&mut self, id: u32, pending: u32) {
        let load = Load {
            pending,
            ..Load::default()
        };
        self.event(Event::Probed {
            replica: ReplicaId(id),
            load,
            sent: self.now,
        });
    }

    fn sleep(&mut self, ms: u64) {
        self.now = self.now.after(Duration::from_millis(ms));
        self.router.handle_timeout(self.now);
    }

    /// A prompt of these blocks arrives; its number.
    fn ask(&mut self, blocks: &[u64]) -> u64 {
        let id = self.next;
        self.next += 1;
        self.event(Event::Arrived(request(id, blocks)));
        id
    }

    fn finish(&mut self, id: u64) {
        self.event(Event::Finished {
            id: RequestId(id),
            served_by: ServedBy::Unreported,
            end: End::Answered,
            ttft_us: None,
            prompt_tokens: None,
            cached_tokens: None,
            completion_tokens: None,
        });
    }

    /// Requests dispatched since the last call: id, replica and reason.
    fn sent(&mut self) -> Vec<(u64, u32, Reason)> {
        core::iter::from_fn(|| self.router.poll_effect())
            .filter_map(|effect| match effect {
                Effect::Dispatch(id, decision) => Some((id.0, decision.replica.0, decision.reason)),
                Effect::Forward(..) | Effect::Reject { .. } | Effect::Hung { .. } => None,
            })
            .collect()
    }

    /// Sends a request, finishes it at once, and returns its replica.
    fn answered_by(&mut self, blocks: &[u64]) -> u32 {
        let id = self.ask(blocks);
        let sent = self.sent();
        assert_eq!((sent.len(), sent[0].0), (1, id));
        self.finish(id);
        sent[0].1
    }

    /// Where it would go now.
    fn choice(&self, blocks: &[u64]) -> Choice {
        let request = request(1_000_000, blocks);
        self.router.explain(self.now, &request).choice
    }

    /// The candidates of a prompt, as scores tell them.
    fn candidates(&self, blocks: &[u64]) -> Vec<u32> {
        let request = request(1_000_000, blocks);
        let explained = self.router.explain(self.now, &request);
        let mut all: Vec<(f64, u32)> = explained
            .candidates
            .iter()
            .map(|candidate| (candidate.score, candidate.replica.0))
            .filter(|(score, _)| *score > 0.9)
            .collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        all.into_iter().map(|(_, id)| id).collect()
    }
}

fn request(id: u64, blocks: &[u64]) -> Request {
    let mut hash = 7_u64;
    let blocks: Vec<BlockHash> = (1..)
        .zip(blocks)
        .map(|(i, block)| {
            hash = (hash ^ block)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
            BlockHash {
                hash,
                end_bytes: i * BLOCK_TOKENS * 4,
            }
        })
        .collect();
    let count = u32::try_from(blocks.len()).unwrap();
    Request {
        id: RequestId(id),
        fingerprint: Arc::new(Fingerprint::new(blocks, count * BLOCK_TOKENS * 4).unwrap()),
        session: None,
        tier: Tier::default(),
        ttft_slo: None,
        deadline: None,
        prompt_tokens: count * BLOCK_TOKENS,
        output_tokens_max: None,
        previous_response: None,
        subset: None,
        adapter: None,
        scope: Scope::default(),
        tenant: TenantId::default(),
        tells_start: false,
        api: None,
        wants_stream: true,
    }
}

/// A prompt of its own, with this many blocks behind its first one.
fn long(first: u64, blocks: u64) -> Vec<u64> {
    core::iter::once(first)
        .chain((0..blocks).map(|i| 1_000 * first + i))
        .collect()
}

#[test]
fn a_conversation_stays_on_its_two_replicas() {
    let mut pool = Pool::new(Push::Blind, 8);
    for session in 0..20 {
        let mut at = BTreeSet::new();
        for turn in 1..10 {
            at.insert(pool.answered_by(&long(session, turn)));
        }
        assert_eq!(at.len(), 1, "with nothing to do, one of them keeps it");
    }
}

#[test]
fn among_equals_the_less_loaded_is_chosen() {
    let mut pool = Pool::new(Push::Blind, 8);
    // The same prompt over and over: once both candidates have it they take turns by load.
    let mut at = Vec::new();
    for _ in 0..14 {
        pool.ask(&long(1, 12));
        at.push(pool.sent()[0].1);
    }
    let candidates = pool.candidates(&long(1, 12));
    assert!(at.iter().all(|replica| candidates.contains(replica)));
    let first = at.iter().filter(|replica| **replica == at[0]).count();
    assert!((5..=9).contains(&first), "{at:?}");
}

#[test]
fn a_warm_cache_is_followed_until_it_has_more_to_compute_than_the_time_allows() {
    let mut pool = Pool::new(Push::Blind, 8);
    let warm = pool.answered_by(&long(1, 3));
    // One second is 10,000 tokens as presumed: 2 prompts of 6,000 new ones.
    let mut at = Vec::new();
    for i in 0..4 {
        let mut blocks = long(1, 3);
        blocks.extend((0..6).map(|block| 500 + 10 * i + block));
        pool.ask(&blocks);
        at.push(pool.sent()[0].1);
    }
    assert_eq!(at[..2], [warm, warm], "0 s and 0.6 s: in time");
    assert_ne!(at[2], warm, "1.2 s: the other candidate has less to do");
}

#[test]
fn no_request_goes_to_a_third_replica_however_idle() {
    let mut pool = Pool::new(Push::Outstanding { max: 1 }, 8);
    let candidates = pool.candidates(&long(1, 3));
    let mut at = BTreeSet::new();
    for _ in 0..5 {
        pool.ask(&long(1, 3));
        at.extend(pool.sent().iter().map(|(_, replica, _)| *replica));
    }
    assert!(at.iter().all(|replica| candidates.contains(replica)));
    assert!(matches!(pool.choice(&long(1, 3)), Choice::Wait { .. }));
}

#[test]
fn queued_requests_go_to_their_replica_in_order() {
    let mut pool = Pool::new(Push::Outstanding { max: 1 }, 8);
    let ids: Vec<u64> = (0..6).map(|_| pool.ask(&long(1, 3))).collect();
    let mut order = Vec::new();
    let mut replicas = BTreeSet::new();
    for _ in 0..6 {
        let sent = pool.sent();
        for (id, replica, _) in &sent {
            order.push(*id);
            replicas.insert(*replica);
        }
        let last = *order.get(order.len() - sent.len()).unwrap();
        pool.finish(last);
        if order.len() == 6 {
            break;
        }
    }
    order.sort_unstable();
    assert_eq!(order, ids, "all were served");
    assert!(replicas.len() <= 2, "{replicas:?}");
}

#[test]
fn a_request_whose_replica_leaves_gets_another_one() {
    let mut pool = Pool::new(Push::Outstanding { max: 1 }, 3);
    for session in 0..12 {
        pool.ask(&long(session, 3));
    }
    assert_eq!(pool.sent().len(), 3);
    pool.event(Event::Removed(ReplicaId(0)));
    pool.ask(&long(100, 3));
    let mut served = 0;
    for id in 0..13 {
        pool.finish(id);
        served += pool.sent().len();
    }
    for id in 0..13 {
        pool.finish(id);
        served += pool.sent().len();
    }
    assert_eq!(served, 10, "three had gone before");
}

/// Sessions with these two candidates.
fn sessions_of(pool: &Pool, a: u32, b: u32) -> impl Iterator<Item = u64> + use<> {
    let wanted = BTreeSet::from([a, b]);
    let sessions = (10..500).filter(|session| {
        let candidates = pool.candidates(&long(*session, 0));
        BTreeSet::from_iter(candidates) == wanted
    });
    sessions.collect::<Vec<u64>>().into_iter()
}

#[test]
fn queued_requests_move_when_both_candidates_of_an_arrival_are_overloaded() {
    let mut pool = Pool::new(Push::Outstanding { max: 1 }, 3);
    let moves = 1;
    let pair = pool.candidates(&long(moves, 3));
    let a = pool.answered_by(&long(moves, 3));
    let c = if pair[0] == a { pair[1] } else { pair[0] };
    let b = 3 - a - c;
    let mut of_ab = sessions_of(&pool, a, b);
    let mut of_bc = sessions_of(&pool, b, c);
    // b is busy for 1.5 s by estimate, a for 0.5 s, c for 0.1 s.
    pool.ask(&long(of_ab.next().unwrap(), 14));
    pool.ask(&long(of_ab.next().unwrap(), 4));
    let blocker = pool.ask(&long(of_bc.next().unwrap(), 0));
    let busy: Vec<u32> = pool.sent().iter().map(|(_, replica, _)| *replica).collect();
    assert_eq!(busy, [b, a, c]);
    // 0.4 s more for a, and then one that follows its cache there: 0.2 s, which makes 1.1 s until its first token.
    pool.ask(&long(of_ab.next().unwrap(), 3));
    let late = pool.ask(&long(moves, 5));
    // One that waits for c, and came later.
    pool.ask(&long(of_bc.next().unwrap(), 0));
    assert_eq!(pool.sent(), []);
    // The next one finds both a and b with more than a second of work.
    pool.ask(&long(of_ab.next().unwrap(), 0));
    pool.finish(blocker);
    let sent = pool.sent();
    assert_eq!((sent[0].0, sent[0].1), (late, c), "it stands in c's line");
}

#[test]
fn a_request_for_a_stalled_replica_goes_to_the_other_candidate() {
    let mut pool = Pool::with_slo(Push::Pending, 2, 5);
    let warm = pool.answered_by(&long(1, 3));
    let cold = 1 - warm;
    // The warm one is full, as its engine says: others arrive there, and none begins. By estimate it has nothing to compute.
    let full = |probe: u32| 3 + probe;
    pool.probe(warm, full(0));
    pool.probe(cold, 0);
    let id = pool.ask(&long(1, 4));
    for probe in 1..30 {
        pool.sleep(100);
        pool.probe(warm, full(probe));
        pool.probe(cold, 0);
    }
    assert_eq!(pool.sent(), [], "it waits for the cache");
    pool.sleep(200);
    pool.probe(warm, full(30));
    pool.probe(cold, 0);
    let sent = pool.sent();
    let moved = sent.first().map(|(id, replica, _)| (*id, *replica));
    assert_eq!(moved, Some((id, cold)), "no prompt began there for 3 s");
}

#[test]
fn the_delay_of_a_stalled_replica_does_not_count_in_routing() {
    let mut pool = Pool::new(Push::Blind, 2);
    let warm = pool.answered_by(&long(1, 3));
    for _ in 0..31 {
        pool.probe(warm, 3);
        pool.probe(1 - warm, 0);
        pool.sleep(100);
    }
    let id = pool.ask(&long(1, 3));
    let sent = pool.sent();
    assert_eq!(
        (sent[0].0, sent[0].1),
        (id, warm),
        "it has nothing to compute, and rebalancing moves what waits"
    );
}

#[test]
fn a_new_policy_serves_the_requests_that_waited_before_it() {
    let mut pool = Pool::new(Push::Outstanding { max: 1 }, 3);
    let config = RouterConfig {
        policy: PolicyName::RoundRobin.into(),
        push: Push::Outstanding { max: 1 },
        ..RouterConfig::default()
    };
    pool.router.reconfigure(pool.now, config.clone());
    for session in 0..10 {
        pool.ask(&long(session, 3));
    }
    assert_eq!(pool.sent().len(), 3);
    let dual_map = RouterConfig {
        policy: PolicyName::DualMap.into(),
        ..config
    };
    pool.router.reconfigure(pool.now, dual_map);
    let mut served = BTreeSet::from([0, 1, 2]);
    while served.len() < 10 {
        let before = served.len();
        for id in served.clone() {
            pool.finish(id);
        }
        served.extend(pool.sent().iter().map(|(id, _, _)| *id));
        assert!(served.len() > before, "{served:?}");
    }
}
