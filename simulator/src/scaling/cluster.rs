//! Models that share the GPUs of several regions, in closed loop with a scaler.
//!
//! Time passes in steps of 15 s, the cooldown of the paper's reactive strategy. In each step: clients send (Poisson around the
//! traffic's rate), the region router moves what a region cannot take below 70 % of its memory to regions that can (P§6.1), the
//! manager of non-interactive requests releases what has room, the pools serve, and the scaler sees and decides.
//!
//! Moved requests pay no round trip: between regions of one continent it is a tenth of the least time to the first token here.

use std::sync::Arc;

use super::batch::{BatchQueue, BatchRules};
use super::instances::{Region, StartTimes};
use super::latencies::Latencies;
use super::ledger::Ledger;
use super::pool::{Pool, RequestCounts};
use super::profile::Profile;
use super::scaler::{Demand, STEP_S, Scaler, View};
use super::traffic::{Point, Series};
use crate::workload::rng::SeededRng;

/// Interval between two entries of [`Cell::instances`], s.
const SAMPLE_S: f64 = 900.0;

/// A model as it is deployed in every region.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// Name of the deployment.
    pub name: String,
    /// An instance under load.
    pub profile: Arc<Profile>,
    /// Deployments of one group take each other's spot instances.
    pub group: usize,
    /// Instances of a region at the start.
    pub start: usize,
    /// Bounds of the instances of a region.
    pub bounds: (usize, usize),
    /// Whether the manager holds non-interactive requests; otherwise they are served as they come.
    pub has_batch_manager: bool,
    /// Traffic of each region.
    pub traffic: Vec<Series>,
}

/// Everything of a run but its scaler.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Number of regions.
    pub regions: usize,
    /// Deployments, each in every region.
    pub deployments: Vec<Deployment>,
    /// Times until an instance serves.
    pub times: StartTimes,
    /// Rules of the manager of non-interactive requests.
    pub batch: BatchRules,
    /// Utilisation from which the region router prefers other regions.
    pub region_utilisation: f64,
    /// Length of the run in seconds.
    pub length_s: f64,
    /// Part of the run, from its start, that is played and not counted: every strategy begins with the same instances.
    pub warmup_s: f64,
    /// Seed of arrivals and start-up times.
    pub seed: u64,
}

/// Result of a deployment in a region.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// Costs.
    pub ledger: Ledger,
    /// Times to the first token of interactive requests.
    pub ttft: Latencies,
    /// Times to the end of interactive answers.
    pub e2e: Latencies,
    /// Non-interactive requests: arrived, served, and past their deadline.
    pub batch: BatchTotals,
    /// Mean utilisation over the run.
    pub utilisation: f64,
    /// Instances that serve, start or drain, every 15 minutes.
    pub instances: Vec<(f64, usize)>,
    /// Utilisation at every step.
    pub utilisations: Vec<f64>,
}

/// Non-interactive requests of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BatchTotals {
    /// Requests that arrived.
    pub arrived: f64,
    /// Requests that were served.
    pub served: f64,
    /// Requests that missed their deadline.
    pub missed: f64,
    /// Mean time for which the manager held a request, s.
    pub held_mean_s: f64,
}

/// Result of a run: the cells of each deployment, by region.
#[derive(Clone, Debug, Default)]
pub struct ClusterOutcome {
    /// Cells by deployment, then by region.
    pub cells: Vec<Vec<Cell>>,
}

impl ClusterOutcome {
    /// Cells of the deployments that a predicate selects by their index.
    pub fn of(&self, is_wanted: impl Fn(usize) -> bool) -> impl Iterator<Item = &Cell> {
        let cells = self.cells.iter().enumerate();
        cells
            .filter(move |(index, _)| is_wanted(*index))
            .flat_map(|(_, cells)| cells)
    }
}

impl Cluster {
    /// Plays the traffic with a scaler.
    pub fn run(&self, scaler: &mut dyn Scaler) -> ClusterOutcome {
        let mut run = Run::new(self);
        let mut now_s = 0.0;
        while now_s + STEP_S <= self.length_s {
            now_s += STEP_S;
            if now_s - STEP_S <= self.warmup_s && self.warmup_s < now_s {
                run.forget();
            }
            let views = run.step(now_s);
            let wanted = scaler.desired(now_s, &views);
            run.scale(now_s, &views, &wanted);
        }
        run.finish()
    }
}

struct Run<'a> {
    cluster: &'a Cluster,
    regions: Vec<Region>,
    /// State by deployment, then by region.
    states: Vec<Vec<State>>,
    steps: f64,
}

struct State {
    pool: Pool,
    queue: BatchQueue,
    rng: SeededRng,
    served_batch: f64,
    utilisation: f64,
    cell: Cell,
}

/// Requests that clients of a region sent in a step, in units of the profile.
#[derive(Clone, Copy, Default)]
struct Arrival {
    interactive: f64,
    batch: f64,
    /// Requests of the profile in one request.
    equivalents: f64,
    point: Point,
}

impl<'a> Run<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        let instances: Vec<(usize, usize)> = cluster
            .deployments
            .iter()
            .map(|deployment| (deployment.group, deployment.start))
            .collect();
        let region = |index: usize| {
            let seed = cluster
                .seed
                .wrapping_mul(1_000_003)
                .wrapping_add(index as u64);
            Region::new(&instances, cluster.times, seed)
        };
        let state = |deployment: &Deployment, index: u64| State {
            pool: Pool::new(Arc::clone(&deployment.profile)),
            queue: BatchQueue::default(),
            rng: SeededRng::new(cluster.seed.wrapping_mul(7_919).wrapping_add(index)),
            served_batch: 0.0,
            utilisation: 0.0,
            cell: Cell::default(),
        };
        let deployments = (0..).zip(&cluster.deployments);
        Self {
            cluster,
            regions: (0..cluster.regions).map(region).collect(),
            states: deployments
                .map(|(index, deployment)| {
                    let regions = 0..cluster.regions as u64;
                    regions
                        .map(|region| state(deployment, index * 64 + region))
                        .collect()
                })
                .collect(),
            steps: 0.0,
        }
    }

    /// Plays a step that ends at `now_s`; returns what a scaler sees of it.
    fn step(&mut self, now_s: f64) -> Vec<View> {
        for region in &mut self.regions {
            region.advance(now_s, STEP_S);
        }
        self.steps += 1.0;
        let mut views = Vec::new();
        for (index, deployment) in self.cluster.deployments.iter().enumerate() {
            let Some(states) = self.states.get_mut(index) else {
                continue;
            };
            let arrivals: Vec<Arrival> = states
                .iter_mut()
                .zip(&deployment.traffic)
                .map(|(state, traffic)| state.arrivals(&traffic.at(now_s - STEP_S)))
                .collect();
            let ready: Vec<usize> = self
                .regions
                .iter()
                .map(|region| region.counts(index).ready)
                .collect();
            let moved = route(states, &arrivals, &ready, self.cluster.region_utilisation);
            for (region, state) in states.iter_mut().enumerate() {
                let (Some(arrival), Some(interactive)) = (arrivals.get(region), moved.get(region))
                else {
                    continue;
                };
                let Some(own) = self.regions.get(region) else {
                    continue;
                };
                let counts = own.counts(index);
                let served = state.serve(
                    now_s,
                    deployment,
                    self.cluster,
                    counts.ready,
                    arrival,
                    *interactive,
                );
                if now_s % SAMPLE_S < STEP_S {
                    let instances = counts.current() + counts.draining;
                    state.cell.instances.push((now_s / 3_600.0, instances));
                }
                let phases = own.phases(index).collect();
                views.push(View {
                    phases,
                    ..state.view((index, region), counts, deployment.bounds, arrival, served)
                });
            }
        }
        views
    }

    fn scale(&mut self, now_s: f64, views: &[View], wanted: &[Option<usize>]) {
        for (view, wanted) in views.iter().zip(wanted) {
            let (Some(wanted), Some(region)) = (wanted, self.regions.get_mut(view.region)) else {
                continue;
            };
            let (min, max) = view.bounds;
            region.scale(now_s, view.deployment, (*wanted).clamp(min, max));
        }
    }

    /// Forgets the figures so far.
    fn forget(&mut self) {
        self.steps = 0.0;
        for region in &mut self.regions {
            for ledger in &mut region.ledgers {
                *ledger = Ledger::default();
            }
        }
        for state in self.states.iter_mut().flatten() {
            state.pool.ttft = Latencies::default();
            state.pool.e2e = Latencies::default();
            state.utilisation = 0.0;
            state.cell = Cell::default();
        }
    }

    fn finish(self) -> ClusterOutcome {
        let steps = self.steps.max(1.0);
        let regions = self.regions;
        let cells = self.states.into_iter().enumerate().map(|(index, states)| {
            let cell = |(region, mut state): (usize, State)| {
                state.pool.finish();
                let ledgers = regions.get(region).map(|region| &region.ledgers);
                let ledger = ledgers.and_then(|ledgers| ledgers.get(index).cloned());
                let left = state.queue.released + state.queue.promoted;
                Cell {
                    ledger: ledger.unwrap_or_default(),
                    ttft: state.pool.ttft,
                    e2e: state.pool.e2e,
                    batch: BatchTotals {
                        arrived: state.queue.arrived,
                        served: state.served_batch,
                        missed: state.queue.missed,
                        held_mean_s: if left > 0.0 {
                            state.queue.held_s / left
                        } else {
                            0.0
                        },
                    },
                    utilisation: state.utilisation / steps,
                    ..state.cell
                }
            };
            states.into_iter().enumerate().map(cell).collect()
        });
        ClusterOutcome {
            cells: cells.collect(),
        }
    }
}

/// Moves what a region cannot take below the utilisation to regions that can; returns the interactive requests of each region.
fn route(states: &[State], arrivals: &[Arrival], ready: &[usize], utilisation: f64) -> Vec<f64> {
    let mut moved: Vec<f64> = arrivals.iter().map(|arrival| arrival.interactive).collect();
    if moved.len() < 2 {
        return moved;
    }
    let room = |state: &State, ready: usize| state.pool.room(ready, STEP_S, 0.0, utilisation);
    let mut left: Vec<f64> = states
        .iter()
        .zip(ready)
        .zip(&moved)
        .map(|((state, ready), arriving)| room(state, *ready) - arriving)
        .collect();
    for from in 0..moved.len() {
        for to in 0..moved.len() {
            let (Some(over), Some(free)) = (left.get(from).copied(), left.get(to).copied()) else {
                continue;
            };
            let amount = (-over).min(free);
            if amount > 0.0 {
                for (index, change) in [(from, -amount), (to, amount)] {
                    if let Some(requests) = moved.get_mut(index) {
                        *requests += change;
                    }
                    if let Some(left) = left.get_mut(index) {
                        *left -= change;
                    }
                }
            }
        }
    }
    moved
}

impl State {
    fn arrivals(&mut self, point: &Point) -> Arrival {
        let equivalents = self
            .pool
            .profile()
            .equivalents(point.prompt_tokens, point.output_tokens);
        let mut sent = |rate: f64| {
            let mean = rate * STEP_S;
            (mean + mean.sqrt() * self.rng.normal()).max(0.0) * equivalents
        };
        Arrival {
            interactive: sent(point.interactive_per_s),
            batch: sent(point.batch_per_s),
            equivalents,
            point: *point,
        }
    }

    fn serve(
        &mut self,
        now_s: f64,
        deployment: &Deployment,
        cluster: &Cluster,
        ready: usize,
        arrival: &Arrival,
        interactive: f64,
    ) -> RequestCounts {
        self.queue.push(now_s - STEP_S, arrival.batch);
        let rules = &cluster.batch;
        let (promoted, released) = if deployment.has_batch_manager {
            let promoted = self.queue.promote(now_s, rules);
            let utilisation = self.pool.utilisation();
            let signals = STEP_S + interactive;
            let [below, _] = rules.release_below;
            let room = self.pool.room(ready, STEP_S, interactive + promoted, below);
            (
                promoted,
                self.queue.release(now_s, rules, utilisation, signals, room),
            )
        } else {
            let everything = f64::INFINITY;
            (
                0.0,
                self.queue
                    .release(now_s, rules, 0.0, everything, everything),
            )
        };
        // Promoted requests wait as interactive ones, and their time counts nowhere.
        let arriving = RequestCounts {
            interactive,
            batch: released + promoted,
        };
        let served = self.pool.step((now_s, STEP_S), ready, arriving);
        self.served_batch += served.batch;
        self.utilisation += self.pool.utilisation();
        self.cell.utilisations.push(self.pool.utilisation());
        served
    }

    fn view(
        &self,
        (deployment, region): (usize, usize),
        counts: super::instances::Counts,
        bounds: (usize, usize),
        arrival: &Arrival,
        served: RequestCounts,
    ) -> View {
        let profile = self.pool.profile();
        let demand = |requests: f64| {
            let all = (served.interactive + served.batch).max(1e-9);
            let held = self.pool.utilisation() * counts.ready as f64 * profile.kv_tokens * STEP_S;
            Demand {
                requests,
                work_s: requests / profile.capacity_per_s.max(1e-9),
                input_tokens: requests / arrival.equivalents.max(1e-9)
                    * arrival.point.prompt_tokens,
                kv_token_s: held * requests / all,
            }
        };
        View {
            deployment,
            region,
            ready: counts.ready,
            starting: counts.starting,
            phases: Vec::new(),
            bounds,
            utilisation: self.pool.utilisation(),
            in_flight: self.pool.level.in_flight,
            waiting: self.pool.waiting(),
            capacity_per_s: profile.capacity_per_s,
            kv_tokens: profile.kv_tokens,
            input_tokens_per_s: arrival.interactive / arrival.equivalents.max(1e-9)
                * arrival.point.prompt_tokens
                / STEP_S,
            batch_tokens_per_s: arrival.batch / arrival.equivalents.max(1e-9)
                * arrival.point.prompt_tokens
                / STEP_S,
            interactive: demand(served.interactive),
            batch: demand(served.batch),
        }
    }
}
