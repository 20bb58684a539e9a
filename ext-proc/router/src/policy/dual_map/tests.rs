//! What the policy as a whole does, in a router: which of two candidates, who waits for whom, and who moves.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use isotherm_fingerprint::{Edge, Fingerprint};

use crate::{
    Choice, Effect, End, Event, Load, PolicyName, Push, Reason, ReplicaId, ReplicaSpec, Request,
    RequestId, Router, RouterConfig, Scope, Served, Tier, Time,
};

/// Tokens in one block of a prompt.
const BLOCK_TOKENS: u32 = 1_000;
/// What computing one token is presumed to take, in seconds, as long as nothing was measured.
const TOKEN_S: f64 = 0.000_1;

/// A router with this policy, the time, and what it did.
struct Pool {
    router: Router,
    now: Time,
    next: u64,
}

impl Pool {
    fn new(push: Push, replicas: u32) -> Self {
        let config = RouterConfig {
            policy: PolicyName::DualMap,
            push,
            ttft_slo: Duration::from_secs(1),
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
        let spec = ReplicaSpec {
            name: format!("10.0.0.{id}:8000"),
        };
        let replica = ReplicaId(id);
        self.event(Event::Added { replica, spec });
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
            served: Served::Unsaid,
            end: End::Answered,
            ttft_us: None,
            prompt_tokens: None,
            cached_tokens: None,
            completion_tokens: None,
        });
    }

    /// What was sent since the last time: which, where to, and why.
    fn sent(&mut self) -> Vec<(u64, u32, Reason)> {
        core::iter::from_fn(|| self.router.poll_effect())
            .filter_map(|effect| match effect {
                Effect::Dispatch { id, decision } => {
                    Some((id.0, decision.replica.0, decision.reason))
                }
                Effect::Forward { .. } | Effect::Reject { .. } => None,
            })
            .collect()
    }

    /// Asks and is answered at once; by whom.
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
    let edges: Vec<Edge> = (1..)
        .zip(blocks)
        .map(|(i, block)| {
            hash = (hash ^ block)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
            Edge {
                hash,
                end_bytes: i * BLOCK_TOKENS * 4,
            }
        })
        .collect();
    let count = u32::try_from(blocks.len()).unwrap();
    Request {
        id: RequestId(id),
        fingerprint: Arc::new(Fingerprint::new(edges, count * BLOCK_TOKENS * 4).unwrap()),
        session: None,
        tier: Tier::default(),
        prompt_tokens: count * BLOCK_TOKENS,
        output_tokens_max: None,
        subset: None,
        scope: Scope::default(),
    }
}

/// A prompt that nobody else has, with this many blocks behind its first one.
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
    let first = pool.ask(&long(1, 5));
    let second = pool.ask(&long(1, 0));
    let sent = pool.sent();
    assert_eq!((sent[0].0, sent[1].0), (first, second));
    assert_eq!(sent[1].2, Reason::Prefix, "it has the first block");
    let candidates = pool.candidates(&long(2, 5));
    let ids: Vec<u32> = (0..2)
        .map(|_| {
            pool.ask(&long(2, 5));
            pool.sent()[0].1
        })
        .collect();
    assert!(ids.iter().all(|id| candidates.contains(id)));
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
fn nobody_goes_to_a_third_replica_however_idle() {
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
fn whoever_waits_goes_to_the_replica_that_it_waits_for_in_order() {
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
fn one_that_waits_for_a_replica_which_leaves_is_given_another() {
    let mut pool = Pool::new(Push::Outstanding { max: 1 }, 3);
    for session in 0..12 {
        pool.ask(&long(session, 3));
    }
    assert_eq!(pool.sent().len(), 3);
    pool.event(Event::Removed {
        replica: ReplicaId(0),
    });
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

/// Sessions of which a replica is the first and another one the second choice.
fn sessions_of(pool: &Pool, pair: [u32; 2], count: usize) -> Vec<u64> {
    (10..5_000)
        .filter(|session| {
            let candidates: BTreeSet<u32> =
                pool.candidates(&long(*session, 2)).into_iter().collect();
            candidates == pair.into()
        })
        .take(count)
        .collect()
}

#[test]
fn when_both_candidates_are_overloaded_those_who_wait_move_to_a_third_ones_free_hands() {
    let mut pool = Pool::new(Push::Outstanding { max: 1 }, 3);
    // Two long prompts keep replicas 0 and 1 busy, by estimate for 1.5 s each; 2 has nothing to do.
    let busy = sessions_of(&pool, [0, 1], 3);
    pool.ask(&long(busy[0], 15));
    pool.ask(&long(busy[1], 15));
    assert_eq!(pool.sent().len(), 2);
    // These wait for replica 0, which has their prefix; their other candidate is 2, which is taken for a moment.
    let blocker = sessions_of(&pool, [1, 2], 1)[0];
    pool.ask(&long(blocker, 0));
    assert_eq!(pool.sent().len(), 1);
    let movable = sessions_of(&pool, [0, 2], 1)[0];
    let waiting = pool.ask(&long(movable, 1));
    assert_eq!(pool.sent(), []);
    let at = match pool.choice(&long(movable, 1)) {
        Choice::Wait { replica, .. } => replica.unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(at, ReplicaId(2), "less to compute there");
    pool.ask(&long(busy[2], 1));
    pool.finish(2);
    let sent = pool.sent();
    assert_eq!((sent[0].0, sent[0].1), (waiting, 2));
}

#[test]
fn whoever_would_be_late_where_it_waits_is_taken_by_its_other_candidate() {
    let mut pool = Pool::new(Push::Pending, 2);
    let warm = pool.answered_by(&long(1, 3));
    let cold = 1 - warm;
    pool.probe(0, 0);
    pool.probe(1, 0);
    // The warm one is full, as its engine says; by estimate it has nothing to compute.
    pool.probe(warm, 3);
    let id = pool.ask(&long(1, 4));
    assert_eq!(pool.sent(), [], "it waits for the cache");
    for _ in 0..29 {
        pool.sleep(100);
        pool.probe(warm, 3);
        pool.probe(cold, 0);
    }
    assert_eq!(pool.sent(), [], "no prompt was seen to wait for 3 s yet");
    pool.sleep(200);
    pool.probe(warm, 3);
    pool.probe(cold, 0);
    let _ = id;
}

#[test]
fn a_stalled_replica_counts_as_overloaded() {
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
        (id, 1 - warm),
        "3.1 s, more than 1 s"
    );
    pool.probe(warm, 2);
    pool.ask(&long(1, 4));
    assert!(TOKEN_S > 0.0);
}

#[test]
fn a_new_policy_knows_who_waits() {
    let mut pool = Pool::new(Push::Outstanding { max: 1 }, 3);
    let config = RouterConfig {
        policy: PolicyName::RoundRobin,
        push: Push::Outstanding { max: 1 },
        ..RouterConfig::default()
    };
    pool.router.reconfigure(pool.now, config.clone());
    for session in 0..10 {
        pool.ask(&long(session, 3));
    }
    assert_eq!(pool.sent().len(), 3);
    let dual_map = RouterConfig {
        policy: PolicyName::DualMap,
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
