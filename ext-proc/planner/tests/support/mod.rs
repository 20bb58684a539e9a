//! A pool in virtual time: replicas that start after a while, and demand by the minute.

#![allow(dead_code, reason = "each test program uses a part")]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails"
)]

use core::time::Duration;
use std::collections::BTreeMap;

use isotherm_planner::{
    DemandSample, DemandSums, Plan, Planner, PlannerConfig, PoolPlan, PoolRules, ReplicaSample,
    ReplicaState, ReplicasSample, Sample,
};
use isotherm_router::Time;

pub(crate) const POOL: &str = "llama";
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
/// A time far from zero, as in the service: the season looks back a week.
pub(crate) const START: Time =
    Time::from_nanos(1_750_000_000_000_000_000 / 3_600_000_000_000 * 3_600_000_000_000);

/// Rules of replicas whose caches fill as they get busy.
pub(crate) fn rules() -> PoolRules {
    let mut rules = PoolRules::default();
    rules.replicas.max = 40;
    rules.utilisation.busy = rules.utilisation.up;
    rules
}

pub(crate) fn planner(rules: PoolRules) -> Planner {
    Planner::new(PlannerConfig {
        region: "here".to_owned(),
        pools: BTreeMap::from([(POOL.to_owned(), rules)]),
        gpus_max: BTreeMap::new(),
    })
}

/// Sums of a minute in which `busy` replicas worked.
pub(crate) fn sums(busy: f64) -> DemandSums {
    DemandSums {
        requests: busy * 10.0,
        requests_in_slo: busy * 10.0,
        work_s: busy * 60.0,
        input_tokens: busy * 60_000.0,
        kv_token_s: 0.0,
    }
}

pub(crate) fn demand(minute: Time, busy: f64) -> Sample {
    Sample::Demand(
        POOL.to_owned(),
        DemandSample {
            minute,
            reporter: "a".to_owned(),
            interactive: sums(busy),
            ..DemandSample::default()
        },
    )
}

pub(crate) fn replica(number: u32, state: ReplicaState) -> ReplicaSample {
    ReplicaSample {
        name: format!("10.0.0.{number:03}:8000"),
        state,
        warmth_s: 0.0,
        outstanding: 0,
    }
}

pub(crate) fn replicas(count: u32, utilisation: Option<f64>) -> Sample {
    let replicas = (0..count).map(|number| replica(number, ReplicaState::Ready));
    Sample::Replicas(
        POOL.to_owned(),
        ReplicasSample {
            replicas: replicas.collect(),
            utilisation,
            ..ReplicasSample::default()
        },
    )
}

/// Pool whose replicas follow the plan.
pub(crate) struct Follower {
    pub(crate) planner: Planner,
    pub(crate) now: Time,
    pub(crate) startup: Duration,
    /// Replicas with the time at which each one serves.
    starts: Vec<(u32, Time)>,
    drained: Vec<String>,
    next: u32,
    /// Numbers after each change, with their times.
    pub(crate) changes: Vec<(Time, u32)>,
    /// Utilisation that the probes report for a number of busy and of ready replicas.
    pub(crate) utilisation: fn(f64, u32) -> Option<f64>,
}

impl Follower {
    pub(crate) fn new(planner: Planner, count: u32) -> Self {
        let mut follower = Self {
            planner,
            now: START,
            startup: Duration::from_secs(300),
            starts: (0..count).map(|number| (number, START)).collect(),
            drained: Vec::new(),
            next: count,
            changes: Vec::new(),
            utilisation: |busy, ready| Some((busy / f64::from(ready.max(1))).min(1.0)),
        };
        let plan = follower.see(0.0);
        follower.changes.push((follower.now, plan.desired));
        follower
    }

    /// Puts demand of the past into the history.
    pub(crate) fn remember(&mut self, days: u64, busy: impl Fn(u64) -> f64) {
        let minutes = days * 1_440;
        let now = self.now;
        for minute in 0..minutes {
            let back = minutes - minute;
            let at = now.before(MINUTE * u32::try_from(back).expect("few"));
            self.planner.handle(
                at.after(MINUTE),
                demand(at, busy(at.as_nanos() / 60_000_000_000)),
            );
        }
    }

    pub(crate) fn ready(&self) -> u32 {
        let ready = self
            .starts
            .iter()
            .filter(|(number, at)| *at <= self.now && !self.is_drained(*number));
        u32::try_from(ready.count()).expect("few")
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.starts.len()).expect("few")
    }

    fn is_drained(&self, number: u32) -> bool {
        self.drained
            .contains(&replica(number, ReplicaState::Ready).name)
    }

    fn see(&mut self, busy: f64) -> PoolPlan {
        let ready = self.ready();
        let samples = self.starts.iter().map(|(number, at)| {
            let state = if self.is_drained(*number) {
                ReplicaState::Draining
            } else if *at <= self.now {
                ReplicaState::Ready
            } else {
                ReplicaState::Starting
            };
            replica(*number, state)
        });
        let sample = ReplicasSample {
            replicas: samples.collect(),
            utilisation: (self.utilisation)(busy, ready),
            ..ReplicasSample::default()
        };
        self.planner
            .handle(self.now, Sample::Replicas(POOL.to_owned(), sample));
        self.plan()
    }

    fn plan(&mut self) -> PoolPlan {
        let Plan { mut pools, .. } = self.planner.plan(self.now);
        pools.remove(POOL).expect("the pool has a plan")
    }

    /// One minute of demand, with a plan every 15 seconds that the replicas follow.
    pub(crate) fn minute(&mut self, busy: f64) -> PoolPlan {
        let begin = self.now;
        let mut last = PoolPlan::default();
        for quarter in 1..=4 {
            self.now = begin.after(MINUTE / 4 * quarter);
            if quarter == 4 {
                self.planner.handle(self.now, demand(begin, busy));
            }
            let plan = self.see(busy);
            self.follow(&plan);
            if self
                .changes
                .last()
                .is_none_or(|(_, number)| *number != plan.desired)
            {
                self.changes.push((self.now, plan.desired));
            }
            last = plan;
        }
        last
    }

    fn follow(&mut self, plan: &PoolPlan) {
        self.drained.retain(|name| !plan.undrain.contains(name));
        // A drained replica is removed at once: its requests are short.
        let gone: Vec<String> = plan.drain.clone();
        self.starts
            .retain(|(number, _)| !gone.contains(&replica(*number, ReplicaState::Ready).name));
        while self.count() < plan.desired {
            self.starts.push((self.next, self.now.after(self.startup)));
            self.next += 1;
        }
    }
}

/// Random numbers of a seed (SplitMix64), so that a failure can be repeated.
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in [0, 1).
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Nearly normal, with mean 0 and deviation 1.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// Weekday profile of Office 365's model C by hour, mean about 1.
pub(crate) const HOURS: [f64; 24] = [
    0.83, 0.68, 0.57, 0.47, 0.40, 0.39, 0.37, 0.34, 0.34, 0.33, 0.34, 0.33, 0.44, 0.79, 1.34, 1.73,
    1.95, 2.03, 2.09, 2.16, 1.92, 1.71, 1.42, 1.03,
];

/// Profile at a minute, on a line between the hours.
pub(crate) fn profile(minute: u64) -> f64 {
    let hour = (minute / 60 % 24) as usize;
    let part = (minute % 60) as f64 / 60.0;
    HOURS[hour] * (1.0 - part) + HOURS[(hour + 1) % 24] * part
}
