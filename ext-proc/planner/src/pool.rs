//! Planner of one pool: history, outlook, number, replicas.

use core::time::Duration;

use isotherm_router::Time;
use serde::{Deserialize, Serialize};

use crate::capacity::Capacity;
use crate::history::History;
use crate::outlook::Outlook;
use crate::pace::{PaceInputs, Wish, ceil};
use crate::removal::Removal;
use crate::startup::Startup;
use crate::steps::{StepRules, Steps};
use crate::target::Target;
use crate::watch::ReplicaWatch;
use crate::{
    Forecast, Hold, Pace, PlanReason, PoolPlan, PoolRules, RegionRow, ReplicaBounds, ReplicaState,
    ReplicasSample, Signal,
};

/// Minutes whose mean is the demand of now.
const DEMAND_MINUTES: u64 = 5;
/// Minutes that must all exceed the upper forecast.
const BURST_MINUTES: u64 = 3;
/// Shortest start-up time by which waiting work is divided.
const STARTUP_MIN: Duration = Duration::from_secs(30);

/// State of one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PoolPlanner {
    history: History,
    capacity: Capacity,
    startup: Startup,
    pub(crate) steps: Steps,
    removal: Removal,
    target: Option<Target>,
    #[serde(skip)]
    outlook: Outlook,
    #[serde(skip)]
    watch: ReplicaWatch,
    #[serde(skip)]
    hold: Option<Hold>,
}

impl PoolPlanner {
    pub(crate) fn report(&mut self, now: Time, sample: crate::DemandSample) {
        self.history.report(now, sample);
    }

    pub(crate) fn supply(&mut self, peak: f64) {
        self.outlook.supply(peak);
    }

    pub(crate) fn adopt(&mut self, now: Time, plan: crate::AdoptedPlan) {
        let change = self.steps.adopt(now, plan.desired, plan.epoch);
        self.account(now, change);
        if plan.epoch > 0 {
            self.removal.adopt(plan.drained);
            self.hold = plan.hold;
        }
    }

    pub(crate) fn set_hold(&mut self, hold: Option<Hold>) {
        self.hold = hold;
    }

    /// Takes the state of the replicas.
    pub(crate) fn see_replicas(&mut self, now: Time, sample: ReplicasSample, rules: &PoolRules) {
        // A full cache counts as much as a busy replica: each at its own threshold.
        let utilisation = &rules.utilisation;
        let kv_tokens = sample.kv_tokens;
        self.history
            .set_kv_tokens(kv_tokens.map(|tokens| tokens * utilisation.up / utilisation.busy));
        for _ in 0..self.watch.see(now, sample, &self.removal) {
            self.startup.started(now);
        }
        self.begin(now, &rules.replicas);
    }

    /// Begins with the replicas that are there. A pool that has just started learns of them one after the other, so its number
    /// rises with them for a while; an empty pool counts as empty only after that time.
    fn begin(&mut self, now: Time, bounds: &ReplicaBounds) {
        let is_discovered = self.watch.is_discovered();
        let present =
            self.watch.count(ReplicaState::Ready) + self.watch.count(ReplicaState::Starting);
        let can_begin = !self.steps.is_known() && (present > 0 || is_discovered);
        let is_growing = self.steps.reason == PlanReason::Initial
            && self.steps.epoch == 1
            && !is_discovered
            && present > self.steps.desired;
        if can_begin || is_growing {
            let desired = present.clamp(bounds.min, bounds.max.max(bounds.min));
            self.steps.set(now, desired, PlanReason::Initial);
            self.steps.epoch = 1;
        }
    }

    /// Demand that one replica may carry, in the unit of the signal (θ).
    pub(crate) fn capacity(&self, rules: &PoolRules) -> Option<f64> {
        let capacity = match rules.signal {
            Signal::Work => Some(rules.utilisation.busy),
            Signal::InputTokens => rules
                .forecast
                .replica_tokens_per_s
                .or_else(|| self.capacity.estimate()),
        };
        capacity.filter(|capacity| capacity.is_finite() && *capacity > 0.0)
    }

    pub(crate) fn startup(&self, rules: &PoolRules) -> Duration {
        self.startup.estimate(rules.startup)
    }

    /// Forecasts the coming window. Returns this region's row of the program; `None` without a forecast.
    pub(crate) fn forecast(&mut self, now: Time, rules: &PoolRules) -> Option<RegionRow> {
        let startup = self.startup(rules);
        let demand = self.outlook.plan(now, &self.history, rules, startup);
        let capacity = self.capacity(rules);
        Some(RegionRow {
            demand: demand?,
            capacity: capacity?,
            ..self.fixed_row(rules)
        })
    }

    /// Row of a pool without a forecast: its number, with room for neither more nor fewer.
    pub(crate) fn fixed_row(&self, rules: &PoolRules) -> RegionRow {
        RegionRow {
            replicas: self.steps.desired,
            demand: 0.0,
            capacity: 1.0,
            min: rules.replicas.min,
            max: rules.replicas.max,
        }
    }

    /// Row with the forecast of the current plan, or the fixed row without one.
    pub(crate) fn current_row(&self, now: Time, rules: &PoolRules) -> RegionRow {
        let fixed = self.fixed_row(rules);
        let demand = self.outlook.demand(rules);
        let demand = demand.filter(|_| self.has_plan(now, rules));
        match demand.zip(self.capacity(rules)) {
            Some((demand, capacity)) => RegionRow {
                demand,
                capacity,
                ..fixed
            },
            None => fixed,
        }
    }

    /// Takes this region's part of a solution.
    pub(crate) fn set_target(&mut self, target: Target) {
        self.target = Some(target);
    }

    /// Forgets the plan, for lack of a forecast.
    pub(crate) fn clear_target(&mut self) {
        self.target = None;
    }

    fn valid_target(&self, now: Time, rules: &PoolRules) -> Option<Target> {
        self.target
            .filter(|target| !target.is_stale(now, rules.interval))
    }

    /// Whether the pool has a valid plan.
    pub(crate) fn has_plan(&self, now: Time, rules: &PoolRules) -> bool {
        self.valid_target(now, rules).is_some()
    }

    /// Advances to a time: the number follows its pace, at most to `max`, unless a sibling leads.
    pub(crate) fn advance(&mut self, now: Time, rules: &PoolRules, max: u32, is_following: bool) {
        self.history.advance(now);
        self.steps.forget_future(now);
        if let Some((minute, sums)) = self.history.last_sums(now) {
            let ready = self.watch.count(ReplicaState::Ready);
            self.capacity.read(minute, &sums, ready);
        }
        if is_following || !self.steps.is_known() {
            return;
        }
        if rules.pace == Pace::Forecast {
            self.outlook.refresh(now, &self.history, rules);
        }
        let bounds = ReplicaBounds {
            max: rules.replicas.max.min(max).max(rules.replicas.min),
            ..rules.replicas
        };
        let change = self.move_number(now, rules, bounds);
        self.account(now, change);
    }

    fn move_number(&mut self, now: Time, rules: &PoolRules, bounds: ReplicaBounds) -> i64 {
        self.hold = self.hold.filter(|hold| now < hold.until);
        if let Some(hold) = self.hold {
            let desired = hold.replicas.clamp(bounds.min, bounds.max);
            return self.steps.set(now, desired, PlanReason::Hold);
        }
        let inputs = self.inputs(now, rules);
        let quiet = match rules.pace {
            Pace::Forecast => rules.stabilisation + self.startup(rules),
            Pace::Immediate | Pace::Utilisation | Pace::UtilisationAndGap | Pace::Reactive => {
                rules.stabilisation
            }
        };
        let target = self.valid_target(now, rules);
        let demand = inputs.demand.unwrap_or_default();
        let step_rules = StepRules {
            bounds,
            stabilisation: rules.stabilisation,
            quiet,
            floor: target.map_or_else(|| ceil(demand), |target| target.share_of(demand)),
        };
        let wish = if self.steps.desired == 0 && self.watch.sample.waiting > 0 {
            Wish {
                replicas: 1,
                reason: PlanReason::FromZero,
            }
        } else {
            let wish = inputs.wish(rules.pace, &rules.utilisation, &rules.gap);
            target.map_or(wish, |target| target.limit(wish))
        };
        self.steps.follow(now, wish, &step_rules)
    }

    fn account(&mut self, now: Time, change: i64) {
        let count = u32::try_from(change.unsigned_abs()).unwrap_or(u32::MAX);
        match change.signum() {
            1 => self.startup.ordered(now, count),
            -1 => self.startup.cancelled(count),
            _ => {}
        }
    }

    fn inputs(&self, now: Time, rules: &PoolRules) -> PaceInputs {
        let target = self.valid_target(now, rules);
        let capacity = self.capacity(rules);
        let full = |demand: f64| capacity.map(|capacity| demand / capacity);
        let demand = self.demand(now, rules).and_then(full);
        let minutes = self.history.last_minutes(now, BURST_MINUTES);
        let least = minutes
            .iter()
            .map(|demand| demand.interactive(rules.signal))
            .fold(f64::MAX, f64::min);
        let selected = self.outlook.selected().map(|(_, forecast)| forecast);
        let startup = self.startup(rules);
        let lead = self.outlook.lead(now, now.after(startup), rules);
        let lead = target.zip(lead.and_then(full));
        let ready = self.watch.count(ReplicaState::Ready);
        let busy = demand.map(|demand| demand * rules.utilisation.up / f64::from(ready.max(1)));
        let utilisation = match rules.pace {
            Pace::Forecast => self.watch.steady_utilisation(),
            Pace::Immediate | Pace::Utilisation | Pace::UtilisationAndGap | Pace::Reactive => {
                self.watch.sample.utilisation
            }
        };
        let utilisation = utilisation.or(busy);
        PaceInputs {
            desired: self.steps.desired,
            ready,
            target: target.map(|target| target.replicas),
            lead: lead.map(|(target, lead)| target.share_of(lead)),
            kept: lead.map_or(0, |(target, lead)| {
                let full = utilisation.unwrap_or_default() * f64::from(ready);
                target.kept(lead.max(full / rules.utilisation.up))
            }),
            utilisation,
            demand,
            demand_least: (minutes.len() as u64 == BURST_MINUTES)
                .then_some(least)
                .and_then(full),
            point: selected.and_then(|forecast| full(forecast.point)),
            upper: selected.and_then(|forecast| full(forecast.upper)),
            elapsed: elapsed(now, rules.interval),
            waiting: self.watch.sample.waiting_s / startup.max(STARTUP_MIN).as_secs_f64(),
            is_cooled: self.steps.is_cooled(now, rules.utilisation.cooldown),
        }
    }

    /// Mean demand of the last minutes, in the unit of the signal.
    fn demand(&self, now: Time, rules: &PoolRules) -> Option<f64> {
        let minutes = self.history.last_minutes(now, DEMAND_MINUTES);
        let sum: f64 = minutes
            .iter()
            .map(|demand| demand.interactive(rules.signal))
            .sum();
        (!minutes.is_empty()).then(|| sum / minutes.len() as f64)
    }

    /// Plan of the pool as it stands.
    pub(crate) fn plan(&mut self, now: Time, rules: &PoolRules, is_following: bool) -> PoolPlan {
        let desired = if self.steps.is_known() {
            self.steps.desired
        } else {
            rules.replicas.min
        };
        let replicas = &self.watch.sample.replicas;
        let removal = match (self.steps.is_known(), is_following) {
            (false, _) => crate::removal::RemovalPlan::default(),
            (true, true) => self.removal.follow(replicas, desired),
            (true, false) => self
                .removal
                .plan(now, replicas, desired, rules.donate_after),
        };
        let capacity = self.capacity(rules);
        let full = |demand: f64| capacity.map_or(0.0, |capacity| demand / capacity);
        let scaled = |forecast: &Forecast| Forecast {
            point: full(forecast.point),
            upper: full(forecast.upper),
        };
        let target = self.valid_target(now, rules);
        PoolPlan {
            desired,
            epoch: self.steps.epoch,
            reason: self.steps.reason,
            ready: self.watch.count(ReplicaState::Ready),
            starting: self.watch.count(ReplicaState::Starting),
            surplus: removal.surplus,
            target: target.map(|target| target.replicas),
            demand_replicas: self.demand(now, rules).map(full),
            forecasts: self
                .outlook
                .forecasts
                .iter()
                .map(|(model, forecast)| (*model, scaled(forecast)))
                .collect(),
            model: self.outlook.model,
            forecast_error: self.outlook.last_error(),
            startup: self.startup(rules),
            drain: removal.drain,
            undrain: removal.undrain,
            drained: removal.drained,
            donate: removal.donate,
            removal_order: removal.order,
            unmet: target.map_or(0.0, |target| target.unmet),
            hold: self.hold,
            row: RegionRow {
                demand: self.outlook.demand(rules).unwrap_or(0.0),
                capacity: capacity.unwrap_or(0.0),
                ..self.fixed_row(rules)
            },
        }
    }

    /// State without values that are no numbers, within its bounds.
    pub(crate) fn sanitized(mut self) -> Self {
        self.history = self.history.sanitized();
        self.capacity = self.capacity.sanitized();
        self.startup = self.startup.sanitized();
        self
    }
}

/// Elapsed part of the interval, on a grid that all services share.
fn elapsed(now: Time, interval: Duration) -> f64 {
    let interval = interval.as_nanos().max(1);
    let part = u128::from(now.as_nanos()) % interval;
    part as f64 / interval as f64
}
