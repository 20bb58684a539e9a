//! The bounds that end a search early: with few enough replicas, the search agrees with pricing each of them.

use core::time::Duration;

use isotherm_fingerprint::{BlockHash, Fingerprint};
use proptest::prelude::*;

use super::candidates::{affinity_replica, cheapest_now};
use super::cost::CostModel;
use super::query::CandidateQuery;
use crate::config::PoolConfig;
use crate::index::AnswerKey;
use crate::policy::View;
use crate::pool_state::PoolState;
use crate::replica::latency::{Measurement, RequestMeasurement};
use crate::replica::{PushedPrompt, Replica};
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::wait_state::WaitState;
use crate::{
    AdapterKey, AdapterReport, Load, Push, ReplicaId, Request, RequestId, Role, Scope, SessionKey,
    Source, Tier, Time,
};
use std::sync::Arc;

/// Candidates that the policy looks at, among equal matches and among the least loaded replicas.
const REPLICAS: u32 = 8;

/// Event of a replica.
#[derive(Clone, Debug)]
enum Op {
    /// A request of this conversation, at this length.
    Sent { conversation: u64, blocks: u32 },
    /// A measurement: slower than others by this factor, with an answer.
    Measured { slow: u32, answer: u32 },
    /// Share of the KV cache in use.
    Probed { usage: f32 },
    /// An adapter that runs, and the number of slots.
    Reported { adapter: u64, slots: u32 },
}

fn streamed(tokens: f64) -> PushedPrompt {
    PushedPrompt {
        tokens,
        memory_tokens: 0.0,
        is_stream: true,
    }
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0_u64..4, 1_u32..40)
            .prop_map(|(conversation, blocks)| Op::Sent { conversation, blocks }),
        3 => (1_u32..30, 10_u32..2_000).prop_map(|(slow, answer)| Op::Measured { slow, answer }),
        1 => (0.0_f32..1.0).prop_map(|usage| Op::Probed { usage }),
        1 => (0_u64..4, 1_u32..3).prop_map(|(adapter, slots)| Op::Reported { adapter, slots }),
    ]
}

/// All that a policy looks at.
struct Pool(PoolState);

impl Pool {
    fn new(prefillers: u32) -> Self {
        Self::of(REPLICAS, prefillers)
    }

    fn of(replicas: u32, prefillers: u32) -> Self {
        let config = PoolConfig {
            push: Push::Blind,
            probe_stale_after: Duration::from_secs(1_000_000),
            ttft_slo: Duration::from_secs(2),
            ..PoolConfig::default()
        };
        let mut pool = PoolState::new(config, 1);
        pool.service_s = Some(3.0);
        pool.now = Time::from_nanos(1);
        let decodes = (0..replicas).map(|id| (id, Role::Both));
        let prefills = (0..prefillers).map(|id| (replicas + id, Role::Prefill));
        for (id, role) in decodes.chain(prefills) {
            let index = pool.caches.index.join().unwrap();
            let replica = Replica::new(ReplicaId(id), id.to_string(), role);
            pool.replicas.add(index, replica, pool.now);
        }
        Self(pool)
    }

    /// Lets the pool answer so many cold prompts that it expects nothing else.
    fn expect_cold_prompts(&mut self) {
        for _ in 0..2_000 {
            self.0.caches.cached_share.add(1_000.0, 1_000.0);
        }
    }

    fn run(&mut self, replica: ReplicaIndex, op: &Op) {
        let pool = &mut self.0;
        pool.now = pool.now.after(Duration::from_millis(40));
        let id = pool.replicas.id_of(replica).unwrap();
        match *op {
            Op::Sent {
                conversation,
                blocks,
            } => {
                let request = request(conversation, blocks);
                let chain = request.fingerprint.blocks();
                let matched = pool.caches.index.deepest_of(chain, replica);
                pool.replicas
                    .on_dispatch(replica, streamed(f64::from(blocks) * 50.0), pool.now);
                pool.caches.index.record(chain, replica, &matched);
                if let Some(adapter) = request.adapter {
                    pool.adapters.on_dispatch(replica, adapter, pool.now);
                }
                pool.caches.sessions.record(request.session.unwrap(), id);
                let key = AnswerKey::whole(&request.fingerprint, request.session).unwrap();
                pool.caches.answers.record(key, id, blocks * 20);
            }
            Op::Measured { slow, answer } => {
                let (slow, tokens) = (f64::from(slow), f64::from(answer));
                let slot = pool.replicas.slot_of(id);
                pool.replicas.learn(
                    slot,
                    RequestMeasurement {
                        prompt: Some(Measurement {
                            number: tokens,
                            seconds: 0.01 + slow * 1e-5 * tokens,
                            source: Source::Usage,
                        }),
                        output: None,
                    },
                    pool.now,
                );
                pool.caches.answers.learn(100.0, 90.0);
                pool.caches.sessions.learn(true, 0.5);
            }
            Op::Reported { adapter, slots } => {
                let report = AdapterReport {
                    slots: Some(slots),
                    running: vec![AdapterKey(adapter)],
                    waiting: Vec::new(),
                };
                let adapters = &mut pool.adapters;
                adapters.report(replica, &report, pool.now, pool.now);
            }
            Op::Probed { usage } => {
                let load = Load {
                    kv_usage: Some(usage),
                    kv_capacity_tokens: Some(10_000),
                    ..Load::default()
                };
                pool.on_probe(id, Some(load), pool.now);
            }
        }
    }
}

/// Conversations share their first eight blocks, two by two.
fn request(conversation: u64, blocks: u32) -> Request {
    let block = |place: u32| BlockHash {
        hash: if place < 8 {
            1_000 * (conversation / 2) + u64::from(place)
        } else {
            1_000 * (10 + conversation) + u64::from(place)
        },
        end_bytes: (place + 1) * 200,
    };
    let chain = (0..blocks).map(block).collect();
    Request {
        id: RequestId(conversation),
        fingerprint: Arc::new(Fingerprint::new(chain, blocks * 200 + 50).unwrap()),
        session: Some(SessionKey(conversation)),
        tier: Tier::default(),
        ttft_slo: None,
        deadline: None,
        prompt_tokens: blocks * 50 + 12,
        output_tokens_max: None,
        previous_response: None,
        subset: None,
        // The base model, or one of three adapters.
        adapter: conversation.checked_sub(1).map(AdapterKey),
        scope: Scope::default(),
        tenant: crate::TenantId::default(),
        tells_start: false,
        api: None,
        wants_stream: true,
    }
}

#[test]
fn a_request_waits_for_the_least_loaded_of_equal_busy_holders() {
    const HOLDERS: u16 = 8;
    for least_loaded in 0..HOLDERS {
        let mut pool = Pool::of(HOLDERS.into(), 0);
        for replica in 0..HOLDERS {
            let sent = if replica == least_loaded { 1 } else { 6 };
            for _ in 0..sent {
                let (conversation, blocks) = (0, 20);
                let sent = Op::Sent {
                    conversation,
                    blocks,
                };
                pool.run(ReplicaIndex(replica), &sent);
            }
        }
        // By then, all prompts are computed.
        pool.0.now = pool.0.now.after(Duration::from_secs(5));
        let none_is_free = ReplicaSet::default();
        let view = pool.0.view(&none_is_free);
        let request = request(0, 22);
        let query = CandidateQuery::new(&request, &view);
        let affinity =
            affinity_replica(&query, &query.known, &CostModel::new(&view), f64::INFINITY).unwrap();
        assert_eq!(affinity.replica, ReplicaIndex(least_loaded));
    }
}

#[test]
fn a_prompt_finds_the_shortest_queue_of_prefill_though_other_replicas_have_fewer_requests() {
    const HOLDERS: u16 = 20;
    let mut pool = Pool::of(HOLDERS.into(), 0);
    let prompt = request(0, 20);
    for replica in (0..HOLDERS).map(ReplicaIndex) {
        let is_last = replica == ReplicaIndex(HOLDERS - 1);
        let (requests, tokens) = if is_last { (3, 10.0) } else { (1, 40_000.0) };
        for _ in 0..requests {
            let state = &mut pool.0;
            let chain = prompt.fingerprint.blocks();
            let matched = state.caches.index.deepest_of(chain, replica);
            state
                .replicas
                .on_dispatch(replica, streamed(tokens), state.now);
            state.caches.index.record(chain, replica, &matched);
        }
    }
    let request = request(0, 200);
    let candidates = pool.0.replicas.available().clone();
    let view = pool.0.view(&candidates);
    let query = CandidateQuery::new(&request, &view);
    let best = cheapest_now(&query, &CostModel::new(&view)).unwrap();
    assert_eq!(best.replica, ReplicaIndex(HOLDERS - 1));
}

proptest! {
    #[test]
    fn no_replica_costs_less_than_the_selected_one(
        ops in prop::collection::vec((0..REPLICAS as u16, op()), 0..120),
        (conversation, blocks) in (0_u64..4, 1_u32..60),
        left_out in prop::option::of(0..REPLICAS as u16),
        prefillers in 0_u32..3,
        (are_cold, waited_s) in (any::<bool>(), 0.0_f64..3.0),
    ) {
        let mut pool = Pool::new(prefillers);
        if are_cold {
            pool.expect_cold_prompts();
        }
        for (replica, op) in &ops {
            pool.run(ReplicaIndex(*replica), op);
        }
        let mut candidates = ReplicaSet::default();
        for replica in pool.0.replicas.available().iter() {
            candidates.set(replica, left_out.is_none_or(|other| replica != ReplicaIndex(other)));
        }
        let view = pool.0.view(&candidates);
        let timing = WaitState { waited_s, ..view.timing };
        let view = View { timing, ..view };
        let cost_model = CostModel::new(&view);
        let request = request(conversation, blocks);
        let query = CandidateQuery::new(&request, &view);
        let best = cheapest_now(&query, &cost_model).unwrap();
        for replica in candidates.iter() {
            let candidate = cost_model.price(&query, replica);
            prop_assert!(best.cost <= candidate.cost, "{best:?} of all, but {candidate:?}");
            for depth in candidate.matched.depth..=blocks as usize {
                let floor = cost_model.lower_bound(&query, depth);
                prop_assert!(floor <= candidate.cost, "{floor} at {depth}, but {candidate:?}");
            }
        }
    }
}

#[test]
fn where_most_prompts_are_cold_a_request_waits_for_its_cache_but_not_for_ever() {
    let mut pool = Pool::of(2, 0);
    pool.expect_cold_prompts();
    let [holder, free] = [0, 1].map(ReplicaIndex);
    let (conversation, blocks) = (0, 40);
    let sent = Op::Sent {
        conversation,
        blocks,
    };
    pool.run(holder, &sent);
    pool.0.now = pool.0.now.after(Duration::from_secs(5));
    let mut available = ReplicaSet::default();
    available.set(free, true);
    let view = pool.0.view(&available);
    let request = request(conversation, blocks + 2);
    let query = CandidateQuery::new(&request, &view);
    let cost_model = CostModel::new(&view);
    let waits_after = |waited_s: f64| {
        let timing = WaitState {
            waited_s,
            delayed_s: waited_s,
            ..view.timing
        };
        let query = CandidateQuery { timing, ..query };
        let there = cost_model.price(&query, free).cost;
        let affinity = affinity_replica(&query, &query.known, &cost_model, there);
        affinity.map(|affinity| affinity.replica)
    };
    let slo_s = view.timing.objective.slo_s;
    assert_eq!(waits_after(0.0), Some(holder));
    assert_eq!(waits_after(3.0 * slo_s), Some(holder));
    assert_eq!(waits_after(6.0 * slo_s), None);
}

#[test]
fn work_weighs_more_where_most_prompts_are_cold_but_not_between_regions() {
    let mut pool = Pool::new(0);
    let costs = |pool: &Pool| {
        let view = pool.0.view(pool.0.replicas.available());
        let cost = |model: CostModel<'_>| model.price_unheld(ReplicaIndex(0), 4_000.0).cost;
        (
            cost(CostModel::new(&view)),
            cost(CostModel::without_affinity(&view)),
        )
    };
    let (warm, of_regions) = costs(&pool);
    assert!((warm / of_regions - 1.0).abs() < 0.05);
    pool.expect_cold_prompts();
    let (cold, still_of_regions) = costs(&pool);
    assert!(cold > 10.0 * warm, "{cold} and {warm} s");
    assert!((still_of_regions - of_regions).abs() < 1e-9);
}
