//! The closed loop with requests: the shipped routing core and the engine model, a [`LiveRun`] for each deployment.
//!
//! The instances are those of the aggregated model, with the same start-up times and the same scaler. An instance that serves joins
//! its region's pool with an empty cache; one that drains gets nothing new, and leaves the pool when it is empty.

use core::time::Duration;

use isotherm_engine::model::Config;
use isotherm_router::{QueueLimits, RouterConfig};

use super::cluster::{Cluster, Deployment};
use super::instances::{Region, Transition};
use super::ledger::Ledger;
use super::scaler::{Demand, STEP_S, Scaler, View};
use crate::record::Outcome;
use crate::setup::{Arrangement, RegionSetup, ReplicaSetup, Setup};
use crate::workload::rng::SeededRng;
use crate::workload::{Session, Workload, lengths};
use crate::{LiveRun, Network};

/// Bound on a wait in the router: longer than any run.
const WAIT_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Delay between two regions of one continent, one way.
const BETWEEN_REGIONS: Duration = Duration::from_millis(25);

/// Result of a deployment.
#[derive(Clone, Debug)]
pub struct RequestOutcome {
    /// The requests.
    pub outcome: Outcome,
    /// Costs by region.
    pub ledgers: Vec<Ledger>,
    /// Mean utilisation over the run, by region.
    pub utilisation: Vec<f64>,
}

impl Cluster {
    /// Plays the interactive traffic request by request; `engines` has the engine of each deployment.
    pub fn run_requests(&self, engines: &[Config], scaler: &mut dyn Scaler) -> Vec<RequestOutcome> {
        let deployments = self.deployments.iter().zip(engines);
        let inputs: Vec<(Setup, Workload)> = (0..)
            .zip(deployments)
            .map(|(index, (deployment, engine))| {
                let seed = self.seed.wrapping_mul(31).wrapping_add(index);
                let setup = setup(self.regions, deployment.start, *engine, seed);
                (setup, workload(deployment, self.length_s, seed))
            })
            .collect();
        let mut runs: Vec<Run<'_>> = inputs
            .iter()
            .zip(engines)
            .enumerate()
            .map(|(index, ((setup, workload), engine))| {
                Run::new(index, setup, workload, *engine, self)
            })
            .collect();
        let groups: Vec<(usize, usize)> = self
            .deployments
            .iter()
            .map(|deployment| (deployment.group, deployment.start))
            .collect();
        let mut regions: Vec<Region> = (0..self.regions as u64)
            .map(|region| Region::new(&groups, self.times, self.seed ^ region).recorded())
            .collect();
        let mut now_s = 0.0;
        while now_s + STEP_S <= self.length_s {
            now_s += STEP_S;
            let mut views = Vec::new();
            for (number, region) in regions.iter_mut().enumerate() {
                region.advance(now_s, STEP_S);
                apply(region, number, &mut runs);
            }
            for run in &mut runs {
                run.live.advance(Duration::from_secs_f64(now_s));
                run.remove_empty();
                views.extend(run.views(&regions));
            }
            let wanted = scaler.desired(now_s, &views);
            for (view, wanted) in views.iter().zip(wanted) {
                if let (Some(wanted), Some(region)) = (wanted, regions.get_mut(view.region)) {
                    let (min, max) = view.bounds;
                    region.scale(now_s, view.deployment, wanted.clamp(min, max));
                    apply(region, view.region, &mut runs);
                }
            }
        }
        runs.into_iter().map(|run| run.finish(&regions)).collect()
    }
}

/// Carries out what happened to the instances of a region.
fn apply(region: &mut Region, number: usize, runs: &mut [Run<'_>]) {
    for transition in region.take_transitions() {
        match transition {
            Transition::Serves {
                instance,
                deployment,
            } => {
                if let Some(run) = runs.get_mut(deployment) {
                    let replica = run.live.join(number, run.replica);
                    run.serving.push((number, instance, replica));
                }
            }
            Transition::Drains {
                instance,
                deployment,
            } => {
                if let Some(run) = runs.get_mut(deployment) {
                    run.drain(number, instance);
                }
            }
        }
    }
}

struct Run<'a> {
    deployment: usize,
    cluster: &'a Cluster,
    live: LiveRun<'a>,
    replica: ReplicaSetup,
    /// Region, instance and replica of every instance that serves.
    serving: Vec<(usize, usize, usize)>,
    draining: Vec<usize>,
    seen: usize,
    utilisation: Vec<f64>,
    steps: f64,
}

impl<'a> Run<'a> {
    fn new(
        deployment: usize,
        setup: &'a Setup,
        workload: &'a Workload,
        engine: Config,
        cluster: &'a Cluster,
    ) -> Self {
        let before: usize = cluster
            .deployments
            .iter()
            .take(deployment)
            .map(|one| one.start)
            .sum();
        let start = cluster
            .deployments
            .get(deployment)
            .map_or(0, |one| one.start);
        let serving = (0..cluster.regions).flat_map(|region| {
            (0..start).map(move |index| (region, before + index, region * start + index))
        });
        Self {
            deployment,
            cluster,
            live: LiveRun::new(setup, workload),
            replica: ReplicaSetup::new(engine),
            serving: serving.collect(),
            draining: Vec::new(),
            seen: 0,
            utilisation: vec![0.0; cluster.regions],
            steps: 0.0,
        }
    }

    fn drain(&mut self, region: usize, instance: usize) {
        let is_it = |entry: &(usize, usize, usize)| (entry.0, entry.1) == (region, instance);
        if let Some(at) = self.serving.iter().position(is_it) {
            let (_, _, replica) = self.serving.swap_remove(at);
            self.live.drain(replica);
            self.draining.push(replica);
        }
    }

    fn remove_empty(&mut self) {
        let live = &mut self.live;
        self.draining.retain(|&replica| {
            let is_empty = live.outstanding(replica) == 0;
            if is_empty {
                live.remove(replica);
            }
            !is_empty
        });
    }

    fn views(&mut self, regions: &[Region]) -> Vec<View> {
        let Some(deployment) = self.cluster.deployments.get(self.deployment) else {
            return Vec::new();
        };
        let profile = &deployment.profile;
        let mut sent = vec![(0.0, 0.0); self.cluster.regions];
        let mut count = 0;
        for request in self.live.sent_since(self.seen) {
            count += 1;
            if let Some((requests, tokens)) = sent.get_mut(request.region) {
                *requests += 1.0;
                *tokens += f64::from(request.prompt_tokens);
            }
        }
        self.seen += count;
        self.steps += 1.0;
        let each = regions.iter().enumerate().zip(sent);
        let utilisation = &mut self.utilisation;
        let live = &self.live;
        let view = |((number, region), (requests, tokens)): ((usize, &Region), (f64, f64))| {
            let counts = region.counts(self.deployment);
            let load = live.load(number);
            if let Some(sum) = utilisation.get_mut(number) {
                *sum += load.utilisation;
            }
            View {
                deployment: self.deployment,
                region: number,
                ready: counts.ready,
                starting: counts.starting,
                phases: region.phases(self.deployment).collect(),
                bounds: deployment.bounds,
                utilisation: load.utilisation,
                in_flight: load.in_flight,
                waiting: load.waiting as f64,
                capacity_per_s: profile.capacity_per_s,
                kv_tokens: profile.kv_tokens,
                input_tokens_per_s: tokens / STEP_S,
                batch_tokens_per_s: 0.0,
                interactive: Demand {
                    requests,
                    work_s: requests / profile.capacity_per_s.max(1e-9),
                    input_tokens: tokens,
                    kv_token_s: load.utilisation
                        * profile.kv_tokens
                        * load.replicas as f64
                        * STEP_S,
                },
                batch: Demand::default(),
            }
        };
        each.map(view).collect()
    }

    fn finish(self, regions: &[Region]) -> RequestOutcome {
        let ledger = |region: &Region| region.ledgers.get(self.deployment).cloned();
        let steps = self.steps.max(1.0);
        RequestOutcome {
            ledgers: regions
                .iter()
                .map(|region| ledger(region).unwrap_or_default())
                .collect(),
            utilisation: self.utilisation.iter().map(|sum| sum / steps).collect(),
            outcome: self.live.finish(),
        }
    }
}

/// Set-up of a deployment: a router in each region, which forwards to the others.
fn setup(regions: usize, start: usize, engine: Config, seed: u64) -> Setup {
    let regions =
        (0..regions).map(|region| RegionSetup::new(&format!("region-{region}"), engine, start));
    let config = RouterConfig {
        queue: QueueLimits {
            length_max: 1_000_000,
            wait_max: WAIT_MAX,
            ..QueueLimits::default()
        },
        ..RouterConfig::default()
    };
    Setup {
        seed,
        network: Network {
            between_regions: BETWEEN_REGIONS,
            ..Network::default()
        },
        ..Setup::regions(regions.collect(), Arrangement::Router(config))
    }
}

/// Poisson arrivals at the rates of a deployment's traffic, with the lengths of Azure's conversation trace.
fn workload(deployment: &Deployment, length_s: f64, seed: u64) -> Workload {
    let mut rng = SeededRng::new(seed);
    let mut sessions = Vec::new();
    for (region, traffic) in deployment.traffic.iter().enumerate() {
        let mut from_s = 0.0;
        while from_s < length_s {
            let to_s = from_s + STEP_S;
            let gap_s = 1.0 / traffic.at(from_s).interactive_per_s.max(1e-9);
            let mut at = from_s + rng.exponential(gap_s);
            while at < to_s.min(length_s) {
                sessions.push(Session {
                    region,
                    ..lengths::request(Duration::from_secs_f64(at), &mut rng)
                });
                at += rng.exponential(gap_s);
            }
            from_s = to_s;
        }
    }
    sessions.sort_by_key(|session| session.starts);
    Workload {
        name: deployment.name.clone(),
        sessions,
        ..Workload::default()
    }
}
