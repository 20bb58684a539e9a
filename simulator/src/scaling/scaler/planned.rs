//! Isotherm's planning core in closed loop: a planner in each region, which hear each other's rows as the services do.

use core::time::Duration;
use std::collections::BTreeMap;

use isotherm_planner::{
    DemandSample, DemandSums, ForecastModel, PeerSample, Planner, PlannerConfig, PoolRules,
    RegionRow, ReplicaBounds, ReplicaSample, ReplicaState, ReplicasSample, Sample, Signal,
};
use isotherm_router::Time;

use super::super::instances::Phase;
use super::{Demand, STEP_S, Scaler, View};

/// Interval of the demand that the planner hears of, s.
const MINUTE_S: f64 = 60.0;

/// Time that a supplied forecast covers beyond the interval of a plan, s. The instances of the next plan start in it.
const STARTUP_S: f64 = 120.0;

/// The planning core.
#[derive(Clone, Debug)]
pub struct PlannerScaler {
    rules: PoolRules,
    regions: Vec<Region>,
    /// Forecasts that are supplied: busy instances of each minute, for each view.
    supplied: Option<Vec<Vec<f64>>>,
}

/// The planner of a region.
#[derive(Clone, Debug)]
struct Region {
    planner: Planner,
    minutes: BTreeMap<String, DemandSample>,
}

impl PlannerScaler {
    /// Planners of every region with these rules; each deployment keeps its own bounds.
    pub fn new(rules: PoolRules) -> Self {
        Self {
            rules,
            regions: Vec::new(),
            supplied: None,
        }
    }

    /// Planners that know the future: the busy instances of each minute, for each view. They get the peak of the minutes that a plan
    /// has to cover. So the number need not wait to see whether a lower demand lasts.
    pub fn supplied(mut rules: PoolRules, minutes: Vec<Vec<f64>>) -> Self {
        rules.signal = Signal::Work;
        rules.forecast.model = ForecastModel::Supplied;
        rules.stabilisation = Duration::ZERO;
        Self {
            supplied: Some(minutes),
            ..Self::new(rules)
        }
    }

    fn begin(&mut self, views: &[View]) {
        let regions = views.iter().map(|view| view.region + 1).max().unwrap_or(0);
        let config = |region: usize| PlannerConfig {
            region: region_name(region),
            pools: views
                .iter()
                .filter(|view| view.region == region)
                .map(|view| (pool_name(view.deployment), self.pool_rules(view)))
                .collect(),
            ..PlannerConfig::default()
        };
        let region = |region: usize| Region {
            planner: Planner::new(config(region)),
            minutes: BTreeMap::new(),
        };
        self.regions = (0..regions).map(region).collect();
    }

    fn pool_rules(&self, view: &View) -> PoolRules {
        let bound = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let (min, max) = view.bounds;
        PoolRules {
            replicas: ReplicaBounds {
                min: bound(min),
                max: bound(max),
                ..self.rules.replicas
            },
            ..self.rules.clone()
        }
    }
}

impl Scaler for PlannerScaler {
    fn desired(&mut self, now_s: f64, views: &[View]) -> Vec<Option<usize>> {
        if self.regions.is_empty() {
            self.begin(views);
        }
        let now = time(now_s);
        for (index, view) in views.iter().enumerate() {
            let Some(region) = self.regions.get_mut(view.region) else {
                continue;
            };
            region.observe(now_s, view);
            if let Some(minutes) = self.supplied.as_ref().and_then(|all| all.get(index)) {
                let covered_s = self.rules.interval.as_secs_f64() + STARTUP_S;
                let coming = minutes.iter().skip((now_s / MINUTE_S) as usize);
                let coming = coming.take((covered_s / MINUTE_S).ceil() as usize);
                let peak = coming.copied().fold(0.0, f64::max);
                region
                    .planner
                    .handle(now, Sample::Forecast(pool_name(view.deployment), peak));
            }
        }
        let plans: Vec<_> = self
            .regions
            .iter_mut()
            .map(|region| region.planner.plan(now))
            .collect();
        self.exchange(
            now,
            plans.iter().map(|plan| {
                let rows = plan
                    .pools
                    .iter()
                    .map(|(name, pool)| (name.clone(), pool.row));
                rows.collect()
            }),
        );
        let desired = |view: &View| {
            let plan = plans
                .get(view.region)?
                .pools
                .get(&pool_name(view.deployment))?;
            Some(plan.desired as usize)
        };
        views.iter().map(desired).collect()
    }
}

impl PlannerScaler {
    /// Tells every region the rows of the others.
    fn exchange(&mut self, now: Time, rows: impl Iterator<Item = Vec<(String, RegionRow)>>) {
        let rows: Vec<Vec<(String, RegionRow)>> = rows.collect();
        for (from, rows) in rows.iter().enumerate() {
            for (to, region) in self.regions.iter_mut().enumerate() {
                if to != from {
                    let peer = PeerSample {
                        region: region_name(from),
                        rows: rows.clone(),
                    };
                    region.planner.handle(now, Sample::Peer(peer));
                }
            }
        }
    }
}

impl Region {
    fn observe(&mut self, now_s: f64, view: &View) {
        let now = time(now_s);
        let pool = pool_name(view.deployment);
        let work_s = view.waiting / view.capacity_per_s.max(1e-9);
        let minute = self.minutes.entry(pool.clone()).or_default();
        add(&mut minute.interactive, &view.interactive);
        add(&mut minute.batch, &view.batch);
        minute.waiting_s = work_s;
        if now_s % MINUTE_S < STEP_S {
            let mut minute = core::mem::take(minute);
            minute.minute = time(now_s - MINUTE_S);
            "simulator".clone_into(&mut minute.reporter);
            self.planner
                .handle(now, Sample::Demand(pool.clone(), minute));
        }
        let outstanding = view.in_flight.round().clamp(0.0, 1e6) as u32;
        let replica = |&(serial, phase): &(u64, Phase)| ReplicaSample {
            name: format!("replica-{serial}"),
            state: match phase {
                Phase::Serving => ReplicaState::Ready,
                Phase::Starting => ReplicaState::Starting,
                Phase::Draining => ReplicaState::Draining,
            },
            warmth_s: 0.0,
            outstanding,
        };
        let sample = ReplicasSample {
            replicas: view.phases.iter().map(replica).collect(),
            utilisation: Some(view.utilisation),
            waiting_s: work_s,
            waiting: view.waiting.clamp(0.0, 1e9) as u32,
            kv_tokens: Some(view.kv_tokens),
        };
        self.planner.handle(now, Sample::Replicas(pool, sample));
    }
}

fn add(sums: &mut DemandSums, demand: &Demand) {
    sums.requests += demand.requests;
    sums.requests_in_slo += demand.requests;
    sums.work_s += demand.work_s;
    sums.input_tokens += demand.input_tokens;
    sums.kv_token_s += demand.kv_token_s;
}

fn pool_name(deployment: usize) -> String {
    format!("deployment-{deployment:02}")
}

fn region_name(region: usize) -> String {
    format!("region-{region:02}")
}

fn time(seconds: f64) -> Time {
    let nanos = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default();
    Time::from_nanos(u64::try_from(nanos.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The view of a deployment over the last step.
    fn view(current: u64, busy: f64) -> View {
        View {
            ready: current as usize,
            phases: (0..current)
                .map(|serial| (serial, Phase::Serving))
                .collect(),
            bounds: (2, 20),
            utilisation: 0.5 * busy / current as f64,
            capacity_per_s: 1.0,
            kv_tokens: 1e5,
            interactive: Demand {
                requests: busy * 15.0,
                work_s: busy * 15.0,
                input_tokens: busy * 15_000.0,
                kv_token_s: 0.5 * busy * 1e5 * 15.0,
            },
            ..View::default()
        }
    }

    #[test]
    fn constant_load_gives_a_constant_number_that_covers_it() {
        let mut scaler = PlannerScaler::new(PoolRules::default());
        let mut current = 4_u64;
        let mut changes = 0;
        for step in 1..=(36 * 240) {
            let now_s = f64::from(step) * 15.0;
            // Two and a half instances are busy. The factor of the first hours is a guess, which a day replaces.
            let desired = scaler.desired(now_s, &[view(current, 2.5)])[0].unwrap() as u64;
            if desired != current && now_s > 24.0 * 3_600.0 {
                changes += 1;
            }
            current = desired;
        }
        assert_eq!(current, 3, "2.5 busy instances over 0.9");
        assert_eq!(changes, 0);
    }

    #[test]
    fn a_planner_that_knows_the_future_is_ready_for_a_rise_and_does_not_outstay_a_fall() {
        let rises = 40..80;
        let busy = |minute: usize| if rises.contains(&minute) { 7.0 } else { 2.5 };
        let minutes = (0..120).map(busy).collect();
        let mut scaler = PlannerScaler::supplied(PoolRules::default(), vec![minutes]);
        let mut current = 3_u64;
        let mut after_minute = Vec::new();
        for minute in 0..120 {
            for step in 0..4 {
                let now_s = (minute * 60 + step * 15) as f64;
                let view = view(current, busy(minute));
                current = scaler.desired(now_s, &[view])[0].unwrap() as u64;
            }
            after_minute.push(current);
        }
        assert_eq!(after_minute[30], 3, "nothing comes yet");
        assert_eq!(after_minute[38], 8, "7 busy instances over 0.9");
        assert_eq!(after_minute[79], 8);
        assert_eq!(after_minute[87], 3, "one interval after the fall");
    }
}
