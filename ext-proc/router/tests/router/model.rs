//! Random operations on the router and on a naive model of it, which checks after each of them what must hold
//! whatever happens, under every policy: nothing lost, nothing sent twice, order, bounds, and no idle replica while a request
//! waits. Policies that let requests wait for warm replicas, and so take them out of order, owe weaker forms of the last
//! ones: see `support::serves_in_order`.

use crate::support::naive::Naive;
use crate::support::naive::ops::{Op, Reach, Server};
use crate::support::naive::tiers::{PoolRules, RequestTags};
use isotherm_policies::PolicyName;
use isotherm_router::{End, PeerReport, PromptCost, Tier};
use proptest::prelude::*;

/// Random operations, as often as they matter.
fn ops(at_most: usize) -> impl Strategy<Value = Vec<Op>> {
    let blocks = prop::collection::vec(0_u64..3, 0..10);
    let subset = prop::option::weighted(0.2, prop::collection::vec(0_usize..6, 0..4));
    let reach = prop_oneof![
        3 => Just(Reach::Home),
        4 => Just(Reach::Regions(Vec::new())),
        1 => prop::collection::vec(0_u16..4, 0..3).prop_map(Reach::Regions),
        2 => Just(Reach::Forwarded),
    ];
    let end = prop_oneof![
        8 => Just(End::Answered),
        1 => Just(End::Refused),
        2 => Just(End::Failed),
    ];
    let op = prop_oneof![
        12 => (blocks.clone(), 0_u64..8, subset, reach, standing()).prop_map(
            |(blocks, session, subset, reach, standing)| Op::Arrive {
                blocks,
                session,
                subset,
                reach,
                standing,
            }
        ),
        1 => rules().prop_map(Op::SetRules),
        8 => (
            any::<usize>(),
            end.clone(),
            prop_oneof![
                8 => Just(Server::Unsaid),
                2 => (0_usize..6).prop_map(Server::Member),
                1 => Just(Server::Stranger),
            ],
            prop::option::of(0_u32..=100),
            prop::option::weighted(0.7, 1_u64..4_000),
            prop::option::of(0_u32..200),
        )
            .prop_map(
                |(which, end, served, cached_percent, ttft_ms, output_tokens)| Op::Finish {
                    which,
                    end,
                    served,
                    cached_percent,
                    ttft_ms,
                    output_tokens,
                }
            ),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(which, waiting)| Op::Abort { which, waiting }),
        8 => (
            0_u16..4,
            (0_u32..3, 0_u32..6, 0_u32..7, 0.0_f32..9.0),
            prop_oneof![3 => Just(0), 1 => 0_u64..800],
            0_u64..300,
        )
            .prop_map(|(peer, (available, free_capacity, queue, drain_per_s), late_ms, round_trip_ms)| {
                Op::PeerSays {
                    peer,
                    report: PeerReport {
                        available,
                        replicas: available,
                        free_capacity,
                        queue: queue.saturating_sub(1),
                        drain_per_s,
                        prompt_cost: (queue % 2 == 0).then_some(PromptCost {
                            first_token_s: drain_per_s / 10.0,
                            others_token_s: 0.000_1,
                            ..PromptCost::default()
                        }),
                        batch_credit: queue % 3,
                        ..PeerReport::default()
                    },
                    late_ms,
                    round_trip_ms,
                }
            }),
        3 => (0_u16..4).prop_map(Op::AddPeer),
        1 => (0_u16..4).prop_map(Op::RemovePeer),
        1 => (0_u16..4).prop_map(Op::LosePeer),
        6 => any::<usize>().prop_map(Op::Begin),
        3 => any::<usize>().prop_map(Op::Returns),
        4 => (any::<usize>(), end, any::<bool>(), prop::option::of(0_u32..=100)).prop_map(
            |(which, end, elsewhere, cached_percent)| Op::FinishAway {
                which,
                end,
                elsewhere,
                cached_percent,
            }
        ),
        1 => any::<usize>().prop_map(Op::AbortAway),
        3 => (any::<bool>(), 0_usize..6, blocks, 0_usize..10).prop_map(
            |(to_peer, which, blocks, known)| Op::Shared {
                to_peer,
                which,
                blocks,
                known,
            }
        ),
        6 => (any::<usize>(), 0_u32..3, any::<bool>(), 0_u64..300).prop_map(
            |(which, pending, tells_all, late_ms)| Op::Probe {
                which,
                pending: pending.saturating_sub(1),
                tells_all,
                late_ms,
            }
        ),
        4 => Just(Op::ProbeAll),
        3 => (any::<usize>(), 0_u32..4_000, prop::bool::weighted(0.1)).prop_map(
            |(which, tokens, restarts)| Op::Count {
                which,
                tokens,
                restarts,
            }
        ),
        1 => any::<usize>().prop_map(Op::ProbeFails),
        2 => any::<usize>().prop_map(Op::AnswersWithoutMetrics),
        2 => any::<usize>().prop_map(Op::Breaks),
        2 => Just(Op::Add),
        1 => any::<usize>().prop_map(Op::Remove),
        1 => any::<usize>().prop_map(Op::Drain),
        1 => any::<usize>().prop_map(Op::Resume),
        6 => (1_u64..400).prop_map(|ms| Op::Sleep { ms }),
        1 => (400_u64..12_000).prop_map(|ms| Op::Sleep { ms }),
        1 => Just(Op::Timeout),
        1 => (0..PolicyName::ALL.len(), 0_u32..5, any::<bool>(), 0_usize..20_000, 0_usize..12, 1_u64..5_000, any::<bool>())
            .prop_map(|(policy, push, lru, bytes_max, length_max, wait_ms, published)| Op::Reconfigure {
                policy,
                push,
                lru,
                bytes_max,
                length_max,
                wait_ms,
                published,
            }),
    ];
    prop::collection::vec(op, 1..at_most)
}

/// Tier and tenant of a request, budget and deadline.
fn standing() -> impl Strategy<Value = RequestTags> {
    let tier = prop_oneof![
        3 => Just(Tier::InteractiveFast),
        3 => Just(Tier::InteractiveNormal),
        3 => Just(Tier::NonInteractive),
    ];
    let budget = prop::option::weighted(0.3, prop_oneof![0_u64..3_000, Just(u64::MAX)]);
    let deadline = prop::option::weighted(0.5, prop_oneof![0_u64..9_000, Just(u64::MAX)]);
    (tier, budget, deadline, 0_u64..5).prop_map(|(tier, budget_ms, deadline_ms, tenant)| {
        RequestTags {
            tier,
            budget_ms,
            deadline_ms,
            tenant,
        }
    })
}

/// Rules of tiers, of the order of service and of tenants.
fn rules() -> impl Strategy<Value = PoolRules> {
    let share = prop::option::weighted(0.4, 0_u8..60);
    (prop::bool::weighted(0.8), 0_u8..5, share, 0_usize..6).prop_map(
        |(has_tiers, order, share_percent, batch_max)| PoolRules {
            has_tiers,
            order,
            share_percent,
            batch_max,
        },
    )
}

/// The policy that a run begins with, and whether its responses tell how long they took.
fn start() -> impl Strategy<Value = (PolicyName, bool)> {
    (
        prop::sample::select(PolicyName::ALL.to_vec()),
        any::<bool>(),
    )
}

fn run((policy, tells_times): (PolicyName, bool), ops: &[Op]) {
    let mut naive = Naive::new(policy, tells_times);
    for op in ops {
        naive.apply(op);
    }
    naive.finish();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_router_agrees_with_a_naive_model(start in start(), ops in ops(250)) {
        run(start, &ops);
    }

    #[test]
    fn the_same_operations_give_the_same_effects(start in start(), ops in ops(120)) {
        let twice = [(); 2].map(|()| {
            let mut naive = Naive::new(start.0, start.1);
            for op in &ops {
                naive.apply(op);
            }
            naive.log
        });
        prop_assert_eq!(&twice[0], &twice[1]);
    }
}

/// Operations of one tier and one tenant, without budgets and without rules.
fn plain(ops: &[Op]) -> Vec<Op> {
    let mut ops = ops.to_vec();
    ops.retain(|op| !matches!(op, Op::SetRules(_) | Op::Reconfigure { .. }));
    for op in &mut ops {
        if let Op::Arrive { standing, .. } = op {
            *standing = RequestTags::default();
        }
    }
    ops
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        ..ProptestConfig::default()
    })]

    #[test]
    fn rules_for_tiers_and_tenants_change_nothing_with_one_tier_and_one_tenant(
        start in start(),
        share_percent in prop::option::of(0_u8..60),
        order in prop_oneof![Just(0), Just(1)],
        ops in ops(120),
    ) {
        // The order of `isotherm` is its own.
        let order = if start.0 == PolicyName::Isotherm { 0 } else { order };
        let rules = PoolRules {
            has_tiers: true,
            order,
            share_percent,
            batch_max: 10,
        };
        let ops = plain(&ops);
        let logs = [PoolRules::default(), rules].map(|rules| {
            let mut naive = Naive::new(start.0, start.1);
            naive.apply(&Op::SetRules(rules));
            for op in &ops {
                naive.apply(op);
            }
            naive.log
        });
        prop_assert_eq!(&logs[0], &logs[1]);
    }
}

/// A restricted request waits only for the replicas of its subset that were there when it arrived.
#[test]
fn a_replica_added_after_a_restricted_request_is_no_candidate_of_it() {
    let arrive = Op::Arrive {
        blocks: vec![0],
        session: 0,
        subset: Some(vec![5, 3]),
        reach: Reach::Home,
        standing: RequestTags::default(),
    };
    let wait = Op::Sleep { ms: 50 };
    let ops = [Op::Add, Op::Add, arrive, Op::Add, Op::ProbeAll, wait];
    run((PolicyName::DualMap, false), &ops);
}
