//! The planner over time: stability, bounds, paces, drains, restarts.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod support;

use core::time::Duration;
use std::collections::BTreeMap;

use isotherm_planner::{
    AdoptedPlan, CostRules, DemandSample, ForecastModel, Hold, Pace, PeerSample, PlanReason,
    Planner, PlannerConfig, PlannerState, PoolRules, RegionRow, ReplicaSample, ReplicaState,
    ReplicasSample, Sample, Signal,
};
use isotherm_router::Time;
use support::{
    Follower, MINUTE, Noise, POOL, START, demand, planner, profile, replica, replicas, rules, sums,
};

const DAY_MINUTES: u64 = 1_440;

#[test]
fn constant_demand_changes_nothing_for_a_day() {
    for pace in [
        Pace::Forecast,
        Pace::Immediate,
        Pace::Utilisation,
        Pace::UtilisationAndGap,
        Pace::Reactive,
    ] {
        let mut pool = Follower::new(planner(PoolRules { pace, ..rules() }), 12);
        pool.remember(9, |_| 7.0);
        for _ in 0..60 {
            pool.minute(7.0);
        }
        let before = pool.changes.len();
        for _ in 0..DAY_MINUTES {
            pool.minute(7.0);
        }
        assert_eq!(pool.changes.len(), before, "{pace:?}: {:?}", pool.changes);
    }
}

#[test]
fn noise_around_constant_demand_removes_no_replica_that_was_just_added() {
    let mut noise = Noise(7);
    let mut pool = Follower::new(planner(rules()), 12);
    pool.remember(9, |_| 7.0);
    for _ in 0..2 * DAY_MINUTES {
        let busy = 7.0 * (1.0 + 0.2 * noise.normal());
        pool.minute(busy.max(0.0));
    }
    let mut last_up = None;
    for pair in pool.changes.windows(2) {
        if pair[1].1 > pair[0].1 {
            last_up = Some(pair[1].0);
        } else if let Some(up) = last_up {
            let gap = pair[1].0.since(up);
            assert!(
                gap >= Duration::from_secs(600),
                "seed 7: down {gap:?} after up: {:?}",
                pool.changes
            );
        }
    }
}

#[test]
fn no_pace_scales_down_within_the_stabilisation_time_of_a_scale_up() {
    for pace in [
        Pace::Forecast,
        Pace::Immediate,
        Pace::Utilisation,
        Pace::UtilisationAndGap,
        Pace::Reactive,
    ] {
        for seed in 0..6 {
            let mut noise = Noise(seed);
            let rules = PoolRules { pace, ..rules() };
            let stabilisation = rules.stabilisation;
            let mut pool = Follower::new(planner(rules), 6);
            for _ in 0..12 * 60 {
                // Minutes without any relation to each other.
                pool.minute(20.0 * noise.uniform().powi(3));
            }
            let mut last_up = None;
            for pair in pool.changes.windows(2) {
                if pair[1].1 > pair[0].1 {
                    last_up = Some(pair[1].0);
                } else if let Some(up) = last_up {
                    assert!(
                        pair[1].0.since(up) >= stabilisation,
                        "{pace:?}, seed {seed}: {:?}",
                        pool.changes
                    );
                }
                assert!((2..=40).contains(&pair[1].1), "{pace:?}, seed {seed}");
                assert!(
                    pair[1].1 + 1 >= pair[0].1,
                    "{pace:?}, seed {seed}: a step of more than one"
                );
            }
        }
    }
}

#[test]
fn replicas_are_ready_before_the_morning_peak() {
    let busy = |minute: u64| 8.0 * profile(minute);
    let mut pool = Follower::new(planner(rules()), 12);
    pool.startup = Duration::from_secs(600);
    pool.remember(9, busy);
    let mut short = 0;
    let mut replica_minutes = 0_u64;
    let mut peak = 0;
    for _ in 0..2 * DAY_MINUTES {
        let minute = pool.now.as_nanos() / 60_000_000_000;
        pool.minute(busy(minute));
        if busy(minute) > f64::from(pool.ready()) * 0.75 {
            short += 1;
        }
        peak = peak.max(pool.count());
        replica_minutes += u64::from(pool.count());
    }
    assert!(short <= 10, "{short} minutes with too few replicas");
    // A fleet for the peak has 25 replicas all day.
    let mean = replica_minutes as f64 / (2 * DAY_MINUTES) as f64;
    assert!(
        (24..=30).contains(&peak) && mean < 0.70 * f64::from(peak),
        "peak {peak}, mean {mean}"
    );
}

#[test]
fn a_burst_beyond_the_forecast_gets_replicas_within_minutes() {
    let mut pool = Follower::new(planner(rules()), 10);
    pool.remember(9, |_| 5.0);
    for _ in 0..65 {
        pool.minute(5.0);
    }
    let before = pool.minute(5.0).desired;
    for _ in 0..4 {
        pool.minute(12.0);
    }
    let after = pool.minute(12.0);
    assert!(after.desired >= 17, "{before} -> {after:?}");
}

#[test]
fn waiting_work_and_the_first_request_of_an_empty_pool_need_replicas() {
    let mut rules = rules();
    rules.replicas.min = 0;
    let mut planner = planner(rules);
    let waiting = |waiting, waiting_s, count| {
        let replicas = (0..count).map(|number| replica(number, ReplicaState::Ready));
        let sample = ReplicasSample {
            replicas: replicas.collect(),
            waiting,
            waiting_s,
            ..ReplicasSample::default()
        };
        Sample::Replicas(POOL.to_owned(), sample)
    };
    planner.handle(START, waiting(0, 0.0, 0));
    assert_eq!(
        planner.plan(START).pools[POOL].epoch,
        0,
        "an empty pool may still discover replicas"
    );
    let later = START.after(MINUTE);
    planner.handle(later, waiting(0, 0.0, 0));
    assert_eq!(planner.plan(later).pools[POOL].desired, 0);
    planner.handle(later, waiting(1, 2.0, 0));
    let plan = &planner.plan(later).pools[POOL];
    assert_eq!((plan.desired, plan.reason), (1, PlanReason::FromZero));
}

#[test]
fn hostile_samples_leave_a_plan_within_bounds() {
    for seed in 0..40 {
        let mut noise = Noise(seed);
        let signal = if seed % 2 == 0 {
            Signal::Work
        } else {
            Signal::InputTokens
        };
        let mut planner = planner(PoolRules { signal, ..rules() });
        let mut now = START;
        for _ in 0..400 {
            // The clock jumps back and forth, by hours and by years.
            now = match noise.next_u64() % 12 {
                0 => now.before(Duration::from_secs(noise.next_u64() % 200_000)),
                1 => now.after(Duration::from_secs(noise.next_u64() % 200_000)),
                2 => Time::from_nanos(noise.next_u64() % 3),
                3 => START,
                _ => now.after(Duration::from_secs(20)),
            };
            let strange = [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300, 3.0, 8.0]
                [(noise.next_u64() % 7) as usize];
            let mut sums = sums(3.0);
            match noise.next_u64() % 4 {
                0 => sums.work_s = strange,
                1 => sums.input_tokens = strange,
                2 => sums.kv_token_s = strange,
                _ => sums.requests = strange,
            }
            let minute = now.before(Duration::from_secs(noise.next_u64() % 600));
            let sample = DemandSample {
                minute,
                reporter: (noise.next_u64() % 3).to_string(),
                interactive: sums,
                waiting_s: strange,
                batch: sums,
            };
            planner.handle(now, Sample::Demand(POOL.to_owned(), sample));
            if noise.next_u64().is_multiple_of(3) {
                let count = u32::try_from(noise.next_u64() % 60).expect("small");
                planner.handle(now, replicas(count, Some(strange)));
            }
            let row = RegionRow {
                replicas: 5,
                demand: strange,
                capacity: strange,
                min: 1,
                max: 0,
            };
            let peer = PeerSample {
                region: "there".to_owned(),
                rows: vec![(POOL.to_owned(), row)],
            };
            planner.handle(now, Sample::Peer(peer));
            let plan = planner.plan(now).pools.remove(POOL).expect("a plan");
            assert!((2..=40).contains(&plan.desired), "seed {seed}: {plan:?}");
        }
    }
}

#[test]
fn the_same_samples_give_the_same_plans_and_a_restart_changes_none() {
    let run = |restart_at: Option<u64>| {
        let mut planner = planner(rules());
        let mut numbers = Vec::new();
        for minute in 0..600 {
            let begin = START.after(MINUTE * minute);
            let now = begin.after(MINUTE);
            planner.handle(now, demand(begin, 3.0 + f64::from(minute % 180) / 20.0));
            planner.handle(now, replicas(10, Some(0.5)));
            numbers.push(planner.plan(now).pools[POOL].desired);
            if restart_at == Some(u64::from(minute)) {
                let text = serde_json::to_string(&planner.state()).expect("the state is JSON");
                let state: PlannerState =
                    serde_json::from_str(&text).expect("the state is read back");
                planner = support::planner(rules());
                planner.restore(state);
            }
        }
        numbers
    };
    let whole = run(None);
    assert_eq!(whole, run(None));
    // Start-up, wishes and hold begin anew, so the number may stay higher for a while; it never falls below.
    let restarted = run(Some(400));
    assert_eq!(whole[..400], restarted[..400]);
    assert!(
        whole.iter().zip(&restarted).all(|(one, two)| two >= one),
        "{whole:?}\n{restarted:?}"
    );
    assert_eq!(whole.last(), restarted.last());
}

#[test]
fn minutes_without_a_report_are_missing_and_not_zero() {
    let mut pool = Follower::new(planner(rules()), 12);
    pool.remember(9, |_| 8.0);
    for _ in 0..65 {
        pool.minute(8.0);
    }
    let before = pool.minute(8.0).desired;
    // Ninety minutes without any report: the plan becomes stale, and the probes still show the load.
    pool.now = pool.now.after(MINUTE * 90);
    let mut lowest = before;
    for _ in 0..180 {
        lowest = lowest.min(pool.minute(8.0).desired);
    }
    assert!(lowest >= 12, "{before} -> {lowest}");
}

#[test]
fn reports_of_several_services_add_up_and_repetitions_do_not() {
    let mut planner = planner(rules());
    let report = |reporter: &str, busy: f64| DemandSample {
        minute: START,
        reporter: reporter.to_owned(),
        interactive: sums(busy),
        ..DemandSample::default()
    };
    let now = START.after(MINUTE);
    for (reporter, busy) in [("a", 1.4), ("b", 2.8), ("a", 1.4)] {
        planner.handle(now, Sample::Demand(POOL.to_owned(), report(reporter, busy)));
    }
    planner.handle(now, replicas(8, None));
    let demand = planner.plan(now).pools[POOL]
        .demand_replicas
        .expect("a demand");
    assert!((demand - 6.0).abs() < 1e-9, "{demand}");
}

#[test]
fn the_coldest_replica_drains_and_is_the_last_to_return() {
    let mut planner = planner(rules());
    let sample = |states: [ReplicaState; 4]| {
        let warmth = [40.0, 0.5, 3.0, 20.0];
        let replicas =
            states
                .into_iter()
                .zip(warmth)
                .enumerate()
                .map(|(number, (state, warmth_s))| ReplicaSample {
                    warmth_s,
                    ..replica(u32::try_from(number).expect("small"), state)
                });
        Sample::Replicas(
            POOL.to_owned(),
            ReplicasSample {
                replicas: replicas.collect(),
                ..ReplicasSample::default()
            },
        )
    };
    use ReplicaState::{Draining, Ready};
    let name = |number| replica(number, Ready).name;
    planner.handle(START, sample([Ready; 4]));
    planner.hold(
        POOL,
        Some(Hold {
            replicas: 2,
            until: START.after(MINUTE * 60),
        }),
    );
    let plan = planner.plan(START).pools.remove(POOL).expect("a plan");
    assert_eq!(plan.drain, [name(1), name(2)]);
    assert_eq!(plan.removal_order, [name(1), name(2), name(3), name(0)]);

    let later = START.after(MINUTE);
    planner.handle(later, sample([Ready, Draining, Draining, Ready]));
    let plan = planner.plan(later).pools.remove(POOL).expect("a plan");
    assert_eq!(
        (plan.surplus, plan.drain.len(), plan.donate.len()),
        (2, 0, 0)
    );
    let later = START.after(MINUTE * 12);
    planner.handle(later, sample([Ready, Draining, Draining, Ready]));
    let plan = planner.plan(later).pools.remove(POOL).expect("a plan");
    assert_eq!(
        plan.donate,
        [name(1), name(2)],
        "the surplus lasted ten minutes"
    );

    planner.hold(
        POOL,
        Some(Hold {
            replicas: 3,
            until: later.after(MINUTE * 60),
        }),
    );
    let plan = planner.plan(later).pools.remove(POOL).expect("a plan");
    assert_eq!(plan.undrain, [name(2)], "the warmer one returns first");
    assert!(plan.drain.is_empty());
}

#[test]
fn a_replica_that_an_operator_drains_is_not_brought_back() {
    let mut planner = planner(rules());
    let sample = |last| {
        let states = [
            ReplicaState::Ready,
            ReplicaState::Ready,
            ReplicaState::Ready,
            last,
        ];
        let replicas = (0..)
            .zip(states)
            .map(|(number, state)| replica(number, state));
        Sample::Replicas(
            POOL.to_owned(),
            ReplicasSample {
                replicas: replicas.collect(),
                ..ReplicasSample::default()
            },
        )
    };
    planner.handle(START, sample(ReplicaState::Ready));
    planner.plan(START);
    planner.handle(START, sample(ReplicaState::Draining));
    let plan = &planner.plan(START).pools[POOL];
    assert_eq!((plan.desired, plan.ready), (4, 3));
    assert!(plan.undrain.is_empty());
}

#[test]
fn the_start_up_time_is_measured_from_the_rise_to_the_first_good_probe() {
    let mut pool = Follower::new(planner(rules()), 4);
    pool.startup = Duration::from_secs(180);
    pool.planner.hold(
        POOL,
        Some(Hold {
            replicas: 9,
            until: START.after(MINUTE * 600),
        }),
    );
    for _ in 0..10 {
        pool.minute(2.0);
    }
    let plan = pool.minute(2.0);
    assert_eq!(plan.ready, 9);
    let startup = plan.startup.as_secs();
    assert!((180..=195).contains(&startup), "{startup} s");
}

#[test]
fn pools_share_gpus_and_the_heavier_one_gets_them() {
    let pool = |weight| {
        let mut rules = rules();
        rules.weight = weight;
        rules.cost = CostRules {
            kind: "h100".to_owned(),
            gpus: 2,
            per_hour: 3.0,
        };
        rules
    };
    let mut planner = Planner::new(PlannerConfig {
        region: "here".to_owned(),
        pools: BTreeMap::from([
            ("heavy".to_owned(), pool(4.0)),
            ("light".to_owned(), pool(1.0)),
        ]),
        gpus_max: BTreeMap::from([("h100".to_owned(), 40)]),
    });
    let mut ready = BTreeMap::from([("heavy", 6), ("light", 6)]);
    for minute in 0..600 {
        let begin = START.after(MINUTE * minute);
        let now = begin.after(MINUTE);
        for (name, busy) in [("heavy", 9.0), ("light", 9.0)] {
            let Sample::Demand(_, sample) = demand(begin, busy) else {
                unreachable!()
            };
            planner.handle(now, Sample::Demand(name.to_owned(), sample));
            let Sample::Replicas(_, sample) = replicas(ready[name], Some(0.9)) else {
                unreachable!()
            };
            planner.handle(now, Sample::Replicas(name.to_owned(), sample));
        }
        let plan = planner.plan(now);
        let total: u32 = plan.pools.values().map(|plan| plan.desired).sum();
        assert!(total <= 20, "minute {minute}: {plan:?}");
        for (name, ready) in &mut ready {
            *ready = plan.pools[*name].desired;
        }
    }
    let plan = planner.plan(START.after(MINUTE * 601));
    assert!(
        plan.pools["heavy"].desired >= 13 && plan.pools["light"].unmet > 0.0,
        "{plan:?}"
    );
}

#[test]
fn regions_that_know_each_other_place_the_same_numbers() {
    let config = |region: &str| {
        let mut rules = rules();
        rules.local_share = 0.8;
        rules.pace = Pace::Immediate;
        rules.forecast.model = ForecastModel::Supplied;
        PlannerConfig {
            region: region.to_owned(),
            pools: BTreeMap::from([(POOL.to_owned(), rules)]),
            gpus_max: BTreeMap::new(),
        }
    };
    let mut planners = ["asia", "eu"].map(|region| Planner::new(config(region)));
    let peaks = [7.0, 3.0];
    let mut rows = [RegionRow::default(); 2];
    let mut numbers = [0; 2];
    let mut now = START;
    for _ in 0..150 {
        now = now.after(MINUTE);
        for at in 0..2 {
            let other = ["eu", "asia"][at];
            let planner = &mut planners[at];
            planner.handle(now, replicas(5, Some(0.5)));
            planner.handle(now, Sample::Forecast(POOL.to_owned(), peaks[at]));
            let peer = PeerSample {
                region: other.to_owned(),
                rows: vec![(POOL.to_owned(), rows[1 - at])],
            };
            planner.handle(now, Sample::Peer(peer));
        }
        for at in 0..2 {
            let plan = planners[at].plan(now).pools.remove(POOL).expect("a plan");
            (rows[at], numbers[at]) = (plan.row, plan.target.unwrap_or_default());
        }
    }
    // Together they need ⌈10 / 0.7⌉ = 15, and each serves at least 0.8 of its own.
    assert_eq!(numbers.iter().sum::<u32>(), 15, "{numbers:?}");
    assert!(numbers[0] >= 8 && numbers[1] >= 4, "{numbers:?}");
}

#[test]
fn a_sibling_adopts_number_and_version() {
    let mut planner = planner(rules());
    planner.handle(START, replicas(5, None));
    planner.plan(START);
    planner.handle(
        START,
        Sample::Adopted(
            POOL.to_owned(),
            AdoptedPlan {
                desired: 9,
                epoch: 41,
                drained: Vec::new(),
                hold: None,
            },
        ),
    );
    let plan = &planner.plan(START).pools[POOL];
    assert_eq!(
        (plan.desired, plan.epoch, plan.reason),
        (9, 41, PlanReason::Adopted)
    );
}

#[test]
fn a_hold_outlasts_the_leader_that_took_it() {
    let mut planner = planner(rules());
    planner.set_following(true);
    planner.handle(START, replicas(5, Some(0.5)));
    let hold = Hold {
        replicas: 9,
        until: START.after(MINUTE * 10),
    };
    let plan = AdoptedPlan {
        desired: 9,
        epoch: 41,
        drained: Vec::new(),
        hold: Some(hold),
    };
    planner.handle(START, Sample::Adopted(POOL.to_owned(), plan));
    planner.set_following(false);
    for minute in 1..10 {
        let now = START.after(MINUTE * minute);
        planner.handle(now, replicas(9, Some(0.1)));
        let plan = &planner.plan(now).pools[POOL];
        assert_eq!(
            (plan.desired, plan.hold),
            (9, Some(hold)),
            "minute {minute}"
        );
    }
    let now = START.after(MINUTE * 10);
    planner.handle(now, replicas(9, Some(0.1)));
    assert_eq!(planner.plan(now).pools[POOL].hold, None);
}

#[test]
fn a_follower_drains_what_the_leader_drains_and_takes_over_from_there() {
    let mut planner = planner(rules());
    let name = |number| replica(number, ReplicaState::Ready).name;
    let sample = |drained: &[u32]| {
        let replicas = (0..4).map(|number| {
            let is_drained = drained.contains(&number);
            replica(
                number,
                if is_drained {
                    ReplicaState::Draining
                } else {
                    ReplicaState::Ready
                },
            )
        });
        let replicas = replicas.collect();
        Sample::Replicas(
            POOL.to_owned(),
            ReplicasSample {
                replicas,
                ..ReplicasSample::default()
            },
        )
    };
    let adopted = |epoch, desired, drained: &[u32]| {
        let drained = drained.iter().map(|number| name(*number)).collect();
        Sample::Adopted(
            POOL.to_owned(),
            AdoptedPlan {
                desired,
                epoch,
                drained,
                hold: None,
            },
        )
    };
    planner.set_following(true);
    planner.handle(START, sample(&[]));
    planner.handle(START, adopted(7, 2, &[3, 2]));
    let plan = planner.plan(START).pools.remove(POOL).expect("a plan");
    assert_eq!((plan.desired, plan.epoch), (2, 7));
    assert_eq!(plan.drain, [name(2), name(3)], "not the coldest of its own");
    planner.handle(START, sample(&[2, 3]));
    planner.handle(START, adopted(8, 3, &[3]));
    let plan = planner.plan(START).pools.remove(POOL).expect("a plan");
    assert_eq!((plan.undrain, plan.drain), (vec![name(2)], Vec::new()));
    // The leader is gone: the number stays, and a rise brings the drained one back.
    planner.handle(START, sample(&[3]));
    planner.set_following(false);
    planner.hold(
        POOL,
        Some(Hold {
            replicas: 4,
            until: START.after(MINUTE),
        }),
    );
    let plan = planner.plan(START).pools.remove(POOL).expect("a plan");
    assert_eq!((plan.epoch, plan.undrain), (9, vec![name(3)]));
}

#[test]
fn the_papers_reactive_strategy_adds_one_replica_per_cooldown() {
    let mut rules = PoolRules {
        pace: Pace::Reactive,
        ..rules()
    };
    rules.utilisation.counts_starting = false;
    let mut planner = planner(rules);
    let mut now = START;
    for _ in 0..4 {
        planner.handle(now, replicas(5, Some(0.8)));
        planner.plan(now);
        now = now.after(Duration::from_secs(15));
    }
    assert_eq!(planner.plan(now).pools[POOL].desired, 9 + 1);
}
