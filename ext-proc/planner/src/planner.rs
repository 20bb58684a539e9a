//! The planner: samples in, plan out.

use std::collections::BTreeMap;

use isotherm_router::Time;

use crate::pool::PoolPlanner;
use crate::regions::PeerTable;
use crate::solve::{Cell, Program};
use crate::target::Target;
use crate::{Hold, Plan, PlannerConfig, PlannerState, PoolRules, RegionRow, Sample, SolveMethod};

/// Planner of the pools of one region.
#[derive(Clone, Debug, Default)]
pub struct Planner {
    config: PlannerConfig,
    pools: BTreeMap<String, PoolPlanner>,
    peers: PeerTable,
    method: Option<SolveMethod>,
    /// Interval of each pool's last forecast, on a grid that all services share.
    intervals: BTreeMap<String, u128>,
    /// Minute of the last attempt without a forecast, by pool.
    attempts: BTreeMap<String, u64>,
    /// Whether a sibling leads, whose numbers this planner adopts.
    is_following: bool,
}

impl Planner {
    /// A planner without history.
    #[must_use]
    pub fn new(config: PlannerConfig) -> Self {
        let mut planner = Self::default();
        planner.reconfigure(config);
        planner
    }

    /// Changes the rules. Pools that stay keep their history; their next plan is made at once.
    pub fn reconfigure(&mut self, config: PlannerConfig) {
        self.pools.retain(|name, _| config.pools.contains_key(name));
        for name in config.pools.keys() {
            self.pools.entry(name.clone()).or_default();
        }
        self.intervals.clear();
        self.attempts.clear();
        self.config = config;
    }

    /// Takes a sample. Samples of pools without rules are dropped.
    pub fn handle(&mut self, now: Time, sample: Sample) {
        match sample {
            Sample::Demand(pool, demand) => {
                if let Some(pool) = self.pools.get_mut(&pool) {
                    pool.report(now, demand);
                }
            }
            Sample::Replicas(pool, replicas) => {
                let rules = self.config.pools.get(&pool);
                if let Some((pool, rules)) = self.pools.get_mut(&pool).zip(rules) {
                    pool.see_replicas(now, replicas, rules);
                }
            }
            Sample::Forecast(pool, peak) => {
                if let Some(pool) = self.pools.get_mut(&pool) {
                    pool.supply(peak);
                }
            }
            Sample::Adopted(pool, plan) => {
                if let Some(pool) = self.pools.get_mut(&pool) {
                    pool.adopt(now, plan);
                }
            }
            Sample::Peer(peer) => self.peers.hear(now, peer),
        }
    }

    /// Holds the number of a pool's replicas; `None` ends the hold. Returns whether the pool exists.
    pub fn hold(&mut self, pool: &str, hold: Option<Hold>) -> bool {
        let pool = self.pools.get_mut(pool);
        pool.map(|pool| pool.set_hold(hold)).is_some()
    }

    /// Sets whether a sibling leads. The planner then forecasts as before, but its numbers change by [`Sample::Adopted`] alone.
    pub fn set_following(&mut self, is_following: bool) {
        self.is_following = is_following;
    }

    /// Plans every pool. The driver calls it every few seconds; a pool's forecast is made once in its interval.
    pub fn plan(&mut self, now: Time) -> Plan {
        self.forecast(now);
        self.advance(now);
        let is_following = self.is_following;
        let pools = self.pools.iter_mut().filter_map(|(name, pool)| {
            let rules = self.config.pools.get(name)?;
            Some((name.clone(), pool.plan(now, rules, is_following)))
        });
        Plan {
            pools: pools.collect(),
            method: self.method,
        }
    }

    /// State that a restart must keep: history, numbers, measured start-up times.
    #[must_use]
    pub fn state(&self) -> PlannerState {
        PlannerState::of(&self.pools)
    }

    /// Restores what [`Self::state`] returned. Pools without rules are dropped, and so are values that are no numbers.
    pub fn restore(&mut self, state: PlannerState) {
        for (name, pool) in state.into_pools() {
            if self.config.pools.contains_key(&name) {
                self.pools.insert(name, pool.sanitized());
            }
        }
    }

    /// Forecasts the pools whose interval began, and solves the program if there are any.
    fn forecast(&mut self, now: Time) {
        let mut rows = BTreeMap::new();
        for (name, rules) in &self.config.pools {
            let Some(pool) = self.pools.get_mut(name) else {
                continue;
            };
            let interval = u128::from(now.as_nanos()) / rules.interval.as_nanos().max(1);
            let minute = now.as_nanos() / 60_000_000_000;
            let is_new = self.intervals.get(name) != Some(&interval) || !pool.has_plan(now, rules);
            if !pool.steps.is_known() || (is_new && self.attempts.get(name) == Some(&minute)) {
                continue;
            }
            if is_new {
                self.attempts.insert(name.clone(), minute);
                if let Some(row) = pool.forecast(now, rules) {
                    self.intervals.insert(name.clone(), interval);
                    rows.insert(name.clone(), row);
                } else {
                    pool.clear_target();
                }
            }
        }
        if !rows.is_empty() {
            self.solve(now, rows);
        }
    }

    /// Solves the program of all pools and regions, and gives each pool its number.
    fn solve(&mut self, now: Time, mut rows: BTreeMap<String, RegionRow>) {
        let mut fixed = Vec::new();
        for (name, rules) in &self.config.pools {
            if let Some(pool) = self.pools.get_mut(name)
                && !rows.contains_key(name)
            {
                let row = pool.current_row(now, rules);
                if row.demand <= 0.0 || !pool.has_plan(now, rules) {
                    fixed.push(name.clone());
                }
                rows.insert(name.clone(), row);
            }
        }
        let program = self.program(now, &rows, &fixed);
        let solution = program.solve();
        self.method = Some(solution.method);
        let is_sharing = solution.method != SolveMethod::ClosedForm;
        let own = self.peers.own_index(&self.config.region);
        for (cell, replicas) in program.cells.iter().zip(&solution.replicas) {
            let Some((name, row)) = rows.iter().nth(cell.model).filter(|_| cell.region == own)
            else {
                continue;
            };
            if let Some(pool) = self.pools.get_mut(name).filter(|_| !fixed.contains(name)) {
                let unmet = solution.unmet.get(&cell.model).copied().unwrap_or_default();
                pool.set_target(Target::new(now, *replicas, row, unmet, is_sharing));
            }
        }
    }

    /// Program of all pools (models) and regions. A region's pool has one kind of GPU.
    fn program(&self, now: Time, rows: &BTreeMap<String, RegionRow>, fixed: &[String]) -> Program {
        let mut program = Program::default();
        let own = self.peers.own_index(&self.config.region);
        let kinds: Vec<&String> = self.config.gpus_max.keys().collect();
        for (kind, gpus) in self.config.gpus_max.values().enumerate() {
            program.gpus_max.insert((own, kind), *gpus);
        }
        for (model, (name, row)) in rows.iter().enumerate() {
            let Some((rules, pool)) = self.config.pools.get(name).zip(self.pools.get(name)) else {
                continue;
            };
            let kind = kinds
                .iter()
                .position(|kind| **kind == rules.cost.kind)
                .unwrap_or(kinds.len());
            program.local_share.insert(model, rules.local_share);
            program.weights.insert(model, rules.weight);
            let template = template(model, kind, rules, pool.startup(rules).as_secs_f64());
            let mut own_row = *row;
            if fixed.contains(name) {
                (own_row.min, own_row.max) = (row.replicas, row.replicas);
            }
            let peers = self
                .peers
                .rows(now, &self.config.region, name, rules.interval);
            for (region, row) in peers.into_iter().chain([(own, own_row)]) {
                program.demand.insert((model, region), row.demand);
                program.cells.push(Cell {
                    region,
                    replicas: row.replicas,
                    capacity: row.capacity,
                    min: row.min,
                    max: row.max,
                    ..template
                });
            }
        }
        program
    }

    /// Moves the number of each pool, those of the highest weight first. A rise takes no more GPUs than are free.
    fn advance(&mut self, now: Time) {
        let mut names: Vec<(&String, &PoolRules)> = self.config.pools.iter().collect();
        names.sort_by(|one, two| two.1.weight.total_cmp(&one.1.weight).then(one.0.cmp(two.0)));
        for (name, rules) in names {
            let max = self.most_by_gpus(name, rules);
            if let Some(pool) = self.pools.get_mut(name) {
                pool.advance(now, rules, max, self.is_following);
            }
        }
    }

    /// Number to which a pool may rise with the GPUs that no pool has.
    fn most_by_gpus(&self, name: &str, rules: &PoolRules) -> u32 {
        let Some(total) = self
            .config
            .gpus_max
            .get(&rules.cost.kind)
            .filter(|_| rules.cost.gpus > 0)
        else {
            return u32::MAX;
        };
        let others = self.config.pools.iter().filter(|(other, others)| {
            other.as_str() != name && others.cost.kind == rules.cost.kind
        });
        let taken: u64 = others
            .filter_map(|(other, others)| {
                let desired = self.pools.get(other)?.steps.desired;
                Some(u64::from(others.cost.gpus) * u64::from(desired))
            })
            .sum();
        let free = u64::from(*total).saturating_sub(taken) / u64::from(rules.cost.gpus);
        u32::try_from(free).unwrap_or(u32::MAX)
    }
}

/// Cell of a pool, without what differs between regions.
fn template(model: usize, kind: usize, rules: &PoolRules, startup_s: f64) -> Cell {
    let price = f64::from(rules.cost.gpus) * rules.cost.per_hour;
    Cell {
        model,
        region: 0,
        kind,
        replicas: 0,
        capacity: 0.0,
        price,
        startup_price: price * startup_s / 3_600.0,
        min: 0,
        max: 0,
        gpus: rules.cost.gpus,
    }
}
