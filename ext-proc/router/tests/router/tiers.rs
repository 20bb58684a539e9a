//! Tiers: the order of service, the gate for batch work, budgets, and what gives way to what.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::home::roomy;
use crate::support::request;
use crate::support::script::Script;
use isotherm_policies::PolicyName;
use isotherm_router::{
    BatchTier, Effect, Event, Load, Push, QueueLimits, QueueOrder, RegionChoice, RegionRules,
    RejectReason, ReleaseReason, Request, RequestId, RouterConfig, Scope, Tier, TierRules,
    WorkClass,
};

const SLO: Duration = Duration::from_secs(5);
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Tokens that the memory of a replica holds.
const CAPACITY: u64 = 1_000_000;

fn config(policy: PolicyName, batch: BatchTier) -> RouterConfig {
    RouterConfig {
        policy: policy.into(),
        push: Push::Outstanding { max: 4 },
        tiers: Some(TierRules {
            batch,
            ..TierRules::new(SLO, WAIT_MAX)
        }),
        probe_stale_after: Duration::from_secs(3_600),
        ..RouterConfig::default()
    }
}

fn of(tier: Tier, id: u64) -> Request {
    Request {
        tier,
        ..request(id, id, &[id, id])
    }
}

fn batch(id: u64) -> Request {
    of(Tier::NonInteractive, id)
}

/// A pool whose replicas tell this use of their memory.
fn pool(config: RouterConfig, replicas: u32, usage: f32) -> Script {
    let mut script = Script::new(config, replicas);
    for id in 0..replicas {
        tell(&mut script, id, usage);
    }
    script
}

fn tell(script: &mut Script, id: u32, usage: f32) {
    script.probe_load(
        id,
        Load {
            kv_usage: Some(usage),
            kv_capacity_tokens: Some(CAPACITY),
            ..Load::default()
        },
    );
}

/// Requests that were dispatched, with their classes, in order.
fn dispatched(script: &mut Script) -> Vec<(u64, WorkClass)> {
    let sent = script
        .effects()
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Dispatch(RequestId(id), decision) => Some((id, decision.class)),
            Effect::Forward(..) | Effect::Reject { .. } | Effect::Hung { .. } => None,
        });
    sent.collect()
}

fn rejected(script: &mut Script) -> Vec<(u64, RejectReason)> {
    let rejected = script
        .effects()
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Reject { id, reason, .. } => Some((id.0, reason)),
            Effect::Dispatch(..) | Effect::Forward(..) | Effect::Hung { .. } => None,
        });
    rejected.collect()
}

/// Replicas to which requests were dispatched, in order.
fn places(script: &mut Script) -> Vec<u32> {
    let effects = script.effects().into_iter();
    let places = effects.filter_map(|effect| match effect {
        Effect::Dispatch(_, decision) => Some(decision.replica.0),
        _ => None,
    });
    places.collect()
}

fn ids(sent: &[(u64, WorkClass)]) -> Vec<u64> {
    sent.iter().map(|(id, _)| *id).collect()
}

fn released(script: &Script) -> BTreeMap<ReleaseReason, u64> {
    script.router.batch_status(script.now).released
}

#[test]
fn each_signal_releases_two_held_requests_below_the_lower_threshold_and_one_below_the_higher() {
    for (usage, each, reason) in [
        (0.2, 2, ReleaseReason::BelowLow),
        (0.35, 1, ReleaseReason::BelowHigh),
        (0.7, 0, ReleaseReason::BelowHigh),
    ] {
        let mut script = pool(config(PolicyName::Isotherm, BatchTier::default()), 4, usage);
        for id in 0..6 {
            script.arrive(batch(id));
        }
        let sent = dispatched(&mut script);
        assert_eq!(sent.len(), each, "{usage}");
        assert!(sent.iter().all(|(_, class)| *class == WorkClass::Batch));
        script.sleep(1_000);
        assert_eq!(dispatched(&mut script).len(), each, "{usage}, an interval");
        if each > 0 {
            script.finish(sent[0].0);
            assert_eq!(dispatched(&mut script).len(), each, "{usage}, an end");
            let count = released(&script)[&reason];
            assert_eq!(count, 3 * each as u64);
        }
        let status = script.router.batch_status(script.now);
        assert_eq!(status.held, 6 - 3 * each, "{usage}");
        assert!((status.utilisation.unwrap() - f64::from(usage)).abs() < 0.01);
    }
}

#[test]
fn requests_sent_since_the_probes_count_as_memory_in_use() {
    let mut script = pool(config(PolicyName::Isotherm, BatchTier::default()), 1, 0.35);
    let long = Request {
        prompt_tokens: 100_000,
        ..of(Tier::InteractiveNormal, 0)
    };
    script.arrive(long);
    script.arrive(batch(1));
    assert_eq!(ids(&dispatched(&mut script)), [0]);
    let used = script.router.batch_status(script.now).utilisation.unwrap();
    assert!((0.44..0.47).contains(&used), "{used}");
    script.now = script.now.after(Duration::from_millis(1));
    tell(&mut script, 0, 0.36);
    assert_eq!(
        ids(&dispatched(&mut script)),
        [1],
        "the probe shows the truth"
    );
}

#[test]
fn no_held_request_starts_while_an_interactive_one_waits_for_a_free_replica() {
    let mut script = pool(config(PolicyName::Isotherm, BatchTier::default()), 2, 0.2);
    for id in 0..8 {
        script.arrive(of(Tier::InteractiveNormal, id));
    }
    script.arrive(of(Tier::InteractiveNormal, 8));
    script.arrive(batch(9));
    assert_eq!(dispatched(&mut script).len(), 8);
    script.finish(0);
    let sent = dispatched(&mut script);
    assert_eq!(sent, [(8, WorkClass::Interactive)]);
    script.finish(1);
    assert_eq!(dispatched(&mut script), [(9, WorkClass::Batch)]);
}

#[test]
fn batch_work_fills_one_replica_before_the_next() {
    let mut script = pool(config(PolicyName::Isotherm, BatchTier::default()), 3, 0.35);
    for id in 0..9 {
        script.arrive(batch(id));
    }
    for _ in 0..6 {
        script.sleep(1_000);
    }
    let first = places(&mut script);
    assert_eq!(
        first,
        [0, 0, 0, 0],
        "the first replica takes no more, and the others are spared"
    );
    for (id, usage) in [(0, 0.85), (1, 0.1), (2, 0.1)] {
        tell(&mut script, id, usage);
    }
    script.sleep(1_000);
    assert_eq!(places(&mut script), [1, 1], "the first replica is full");
    tell(&mut script, 0, 0.1);
    script.sleep(1_000);
    let later = places(&mut script);
    assert_eq!(
        later,
        [1, 1, 2],
        "below the lower threshold others stand in"
    );
}

#[test]
fn batch_work_goes_to_idle_replicas_only_where_engines_tell_nothing_of_their_memory() {
    let mut script = Script::new(config(PolicyName::Isotherm, BatchTier::default()), 1);
    script.arrive(batch(0));
    script.arrive(batch(1));
    assert_eq!(ids(&dispatched(&mut script)), [0]);
    script.sleep(1_000);
    assert_eq!(dispatched(&mut script), [], "the replica is busy");
    script.finish(0);
    assert_eq!(ids(&dispatched(&mut script)), [1]);
}

#[test]
fn a_held_request_near_its_deadline_is_promoted_and_waits_as_an_interactive_one() {
    let rules = BatchTier {
        promote_left: Duration::from_secs(10),
        ..BatchTier::default()
    };
    let mut script = pool(config(PolicyName::Isotherm, rules), 1, 0.9);
    let due_in = |script: &Script, id, s| Request {
        deadline: Some(script.now.after(Duration::from_secs(s))),
        ..batch(id)
    };
    let (later, near) = (due_in(&script, 0, 12), due_in(&script, 1, 10));
    script.arrive(later);
    script.arrive(near);
    assert_eq!(dispatched(&mut script), [(1, WorkClass::Interactive)]);
    let next = script.router.poll_timeout().unwrap();
    assert!(next <= script.now.after(Duration::from_secs(2)), "{next:?}");
    script.sleep(2_000);
    assert_eq!(dispatched(&mut script), [(0, WorkClass::Interactive)]);
    assert_eq!(released(&script)[&ReleaseReason::Promoted], 2);
}

#[test]
fn each_tier_waits_for_as_long_as_its_own_rules_say() {
    let rules = BatchTier {
        wait_max: Duration::from_secs(7),
        ..BatchTier::default()
    };
    let mut config = config(PolicyName::Isotherm, rules);
    let tiers = config.tiers.as_mut().unwrap();
    tiers.fast.wait_max = Duration::from_secs(2);
    tiers.normal.wait_max = Duration::from_secs(4);
    config.push = Push::Outstanding { max: 1 };
    let mut script = pool(config, 1, 0.9);
    let tiers = [
        Tier::InteractiveNormal,
        Tier::NonInteractive,
        Tier::InteractiveNormal,
        Tier::InteractiveFast,
    ];
    for (id, tier) in (0..).zip(tiers) {
        script.arrive(of(tier, id));
    }
    assert_eq!(ids(&dispatched(&mut script)), [0]);
    let mut ends = Vec::new();
    for second in 1..=8 {
        script.sleep(1_000);
        let rejected = rejected(&mut script);
        ends.extend(
            rejected
                .into_iter()
                .map(|(id, reason)| (second, id, reason)),
        );
    }
    assert_eq!(
        ends,
        [
            (2, 3, RejectReason::WaitedTooLong),
            (4, 2, RejectReason::WaitedTooLong),
            (7, 1, RejectReason::NoSpareCapacity),
        ]
    );
    let counts = script.router.tiers(script.now).map(|tier| tier.rejected);
    assert_eq!(counts, [1, 1, 1]);
}

#[test]
fn the_held_request_with_the_last_deadline_gives_way_when_the_queue_is_full() {
    let mut config = config(PolicyName::LeastOutstanding, BatchTier::default());
    config.push = Push::Outstanding { max: 1 };
    config.queue = QueueLimits {
        length_max: 2,
        ..QueueLimits::default()
    };
    let mut script = pool(config, 1, 0.9);
    script.arrive(of(Tier::InteractiveNormal, 0));
    for (id, seconds) in [(1, 4_000), (2, 5_000)] {
        let deadline = Some(script.now.after(Duration::from_secs(seconds)));
        script.arrive(Request {
            deadline,
            ..batch(id)
        });
    }
    script.effects();
    let full = RejectReason::QueueFull;
    script.arrive(of(Tier::InteractiveNormal, 3));
    assert_eq!(rejected(&mut script), [(2, full)]);
    script.arrive(batch(4));
    assert_eq!(rejected(&mut script), [(4, full)], "never the reverse");
    script.arrive(of(Tier::InteractiveFast, 5));
    assert_eq!(rejected(&mut script), [(1, full)]);
    script.arrive(of(Tier::InteractiveFast, 6));
    assert_eq!(
        rejected(&mut script),
        [(6, full)],
        "nothing is held any more"
    );
}

/// Ids in the order of service of a plain policy, where all wait and time has passed.
fn order_of(order: QueueOrder, requests: &[(Tier, Option<u64>, u64)]) -> Vec<u64> {
    let mut config = config(PolicyName::LeastOutstanding, BatchTier::default());
    config.push = Push::Outstanding { max: 1 };
    config.queue.order = order;
    let mut script = pool(config, 1, 0.9);
    script.arrive(of(Tier::InteractiveNormal, 99));
    for (id, (tier, budget_ms, pause_ms)) in (0..).zip(requests) {
        script.arrive(Request {
            ttft_slo: budget_ms.map(Duration::from_millis),
            ..of(*tier, id)
        });
        script.sleep(*pause_ms);
    }
    script.effects();
    let mut last = 99;
    let mut served = Vec::new();
    for _ in requests {
        script.finish(last);
        let sent = dispatched(&mut script);
        last = sent[0].0;
        served.push(last);
    }
    served
}

#[test]
fn each_order_serves_as_it_is_defined() {
    use Tier::{InteractiveFast as Fast, InteractiveNormal as Normal};
    // Budgets in milliseconds; all wait for five seconds in the end.
    let requests = [
        (Normal, Some(9_000), 0),
        (Fast, Some(1_000), 0),
        (Normal, Some(5_500), 0),
        (Fast, Some(8_000), 0),
        (Fast, Some(4_500), 0),
        (Normal, Some(2_000), 0),
        (Fast, Some(5_700), 5_000),
    ];
    let order = |order| order_of(order, &requests);
    assert_eq!(order(QueueOrder::Fcfs), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(order(QueueOrder::Auto), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(order(QueueOrder::Edf), [1, 5, 4, 2, 6, 3, 0]);
    assert_eq!(order(QueueOrder::PriorityFirst), [1, 3, 4, 6, 0, 2, 5]);
    let dpa = QueueOrder::Dpa {
        expired: Duration::from_secs(2),
        urgent: Duration::from_secs(1),
    };
    // Expired; urgent fast, urgent normal; fast, normal; late.
    assert_eq!(order(dpa), [1, 5, 6, 2, 3, 0, 4]);
}

#[test]
fn a_fast_request_is_served_before_a_normal_one_by_the_default_policy() {
    let mut config = config(PolicyName::Isotherm, BatchTier::default());
    config.push = Push::Outstanding { max: 1 };
    let mut script = pool(config, 1, 0.9);
    script.arrive(of(Tier::InteractiveNormal, 0));
    script.arrive(of(Tier::InteractiveNormal, 1));
    script.sleep(100);
    script.arrive(of(Tier::InteractiveFast, 2));
    script.sleep(200);
    script.effects();
    script.finish(0);
    assert_eq!(ids(&dispatched(&mut script)), [2]);
    let counts = script.router.tiers(script.now);
    assert_eq!(counts.map(|tier| tier.waiting), [0, 1, 0]);
    assert_eq!(counts.map(|tier| tier.dispatched), [1, 1, 0]);
}

#[test]
fn a_prompt_that_takes_longer_than_its_objective_comes_behind_the_others() {
    let mut config = config(PolicyName::Isotherm, BatchTier::default());
    config.push = Push::Outstanding { max: 1 };
    let served = |prompt_tokens| {
        let mut script = pool(config.clone(), 1, 0.9);
        script.arrive(of(Tier::InteractiveFast, 0));
        script.arrive(Request {
            prompt_tokens,
            ..of(Tier::InteractiveFast, 1)
        });
        script.sleep(400);
        script.arrive(of(Tier::InteractiveFast, 2));
        script.sleep(300);
        script.effects();
        script.finish(0);
        ids(&dispatched(&mut script))
    };
    // The presumed speed is 0.1 ms a token, and the objective a second.
    assert_eq!(served(2_000), [1]);
    assert_eq!(served(20_000), [2]);
}

#[test]
fn first_tokens_count_by_the_budget_of_their_request() {
    let mut script = pool(config(PolicyName::Isotherm, BatchTier::default()), 2, 0.2);
    script.arrive(of(Tier::InteractiveFast, 0));
    script.arrive(Request {
        ttft_slo: Some(Duration::from_secs(3)),
        ..of(Tier::InteractiveFast, 1)
    });
    script.sleep(2_000);
    for id in 0..2 {
        script.event(Event::Began(RequestId(id)));
    }
    let [fast, ..] = script.router.tiers(script.now);
    assert_eq!((fast.within_slo, fast.past_slo), (1, 1));
}

fn anywhere(tier: Tier, id: u64) -> Request {
    Request {
        scope: Scope::Regions {
            tried: [].into_iter().collect(),
        },
        ..of(tier, id)
    }
}

/// The peer that each forwarded request went to.
fn forwarded(script: &mut Script) -> Vec<(u64, u16)> {
    let sent = script
        .effects()
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Forward(RequestId(id), decision) => Some((id, decision.peer.0)),
            Effect::Dispatch(..) | Effect::Reject { .. } | Effect::Hung { .. } => None,
        });
    sent.collect()
}

#[test]
fn batch_work_leaves_only_for_a_peer_that_would_start_it() {
    let mut script = pool(config(PolicyName::Isotherm, BatchTier::default()), 1, 0.9);
    script.add_peer(0);
    script.peer_says(0, roomy());
    script.arrive(anywhere(Tier::NonInteractive, 0));
    assert_eq!(forwarded(&mut script), []);
    let mut with_credit = roomy();
    with_credit.batch_credit = 2;
    script.peer_says(0, with_credit);
    assert_eq!(forwarded(&mut script), [(0, 0)]);
    for id in 1..4 {
        script.arrive(anywhere(Tier::NonInteractive, id));
    }
    assert_eq!(forwarded(&mut script), [(1, 0)], "the credit is spent");
}

#[test]
fn by_utilisation_a_request_goes_to_the_first_region_with_memory_to_spare() {
    let mut config = config(PolicyName::LeastOutstanding, BatchTier::default());
    config.region = RegionRules {
        choice: RegionChoice::Utilisation,
        stale_after: Duration::from_secs(60),
        ..config.region
    };
    let used = |share| {
        let mut report = roomy();
        report.utilisation = Some(share);
        report.kv_capacity_tokens = 1_000;
        report
    };
    let mut script = pool(config, 1, 0.6);
    for (peer, round_trip_ms, share) in [(0, 100, 0.5), (1, 50, 0.66), (2, 10, 0.8)] {
        script.add_peer(peer);
        script.peer_at(peer, round_trip_ms, used(share));
    }
    let send = |script: &mut Script, id| {
        let tokens = Request {
            prompt_tokens: 100,
            ..anywhere(Tier::InteractiveNormal, id)
        };
        script.arrive(tokens);
        forwarded(script)
    };
    assert_eq!(
        send(&mut script, 0),
        [],
        "its own region has memory to spare"
    );
    tell(&mut script, 0, 0.75);
    assert_eq!(send(&mut script, 1), [(1, 1)], "the nearest one that has");
    assert_eq!(send(&mut script, 2), [(2, 0)], "what was sent counts");
    assert_eq!(send(&mut script, 3), [(3, 0)]);
    assert_eq!(send(&mut script, 4), [(4, 0)], "the least utilised one");
    assert_eq!(
        send(&mut script, 5),
        [],
        "its own is the least utilised one"
    );
    tell(&mut script, 0, 0.95);
    assert_eq!(send(&mut script, 6), [(6, 1)]);
}
