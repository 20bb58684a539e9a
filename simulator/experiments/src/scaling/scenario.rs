//! Scenarios: the models of a region, their traffic, and the runs of strategies on them.

use std::sync::Arc;

use isotherm_simulator::scaling::batch::BatchRules;
use isotherm_simulator::scaling::cluster::{Cluster, ClusterOutcome, Deployment};
use isotherm_simulator::scaling::instances::StartTimes;
use isotherm_simulator::scaling::profile::Profile;
use isotherm_simulator::scaling::trace::Traces;
use isotherm_simulator::scaling::traffic::Series;

use super::figures;
use super::strategies::{Mode, scaler};
use crate::context::Context;
use crate::figures::Row;
use crate::rows::{Panel, Rows};

/// A day, s.
pub(crate) const DAY_S: f64 = 86_400.0;
/// Shares of the West, Central and East region of model A's capacity (P§3).
pub(crate) const REGIONS: [f64; 3] = [0.27, 0.21, 0.52];
/// Instances of a deployment at the start, and its bounds (P§7.1).
const START: usize = 20;
const BOUNDS: (usize, usize) = (2, 20);
/// Remark on the figures of every run that is not played request by request.
pub(crate) const AGGREGATED: &str = "Aggregated model of the instances in steps of 15 s; the experiment fidelity measures its error.";
/// Utilisation from which the region router prefers other regions (P§6.1).
const REGION_UTILISATION: f64 = 0.70;

/// A strategy on a cluster.
pub(crate) struct Trial {
    pub(crate) group: String,
    pub(crate) system: String,
    pub(crate) seed: u64,
    pub(crate) strategy: &'static str,
    pub(crate) mode: Mode,
    pub(crate) cluster: Cluster,
    /// Deployments whose figures count.
    pub(crate) counted: Vec<usize>,
}

/// A trial that was played.
pub(crate) struct TrialResult {
    pub(crate) row: Row,
    pub(crate) outcome: ClusterOutcome,
}

impl Trial {
    /// A strategy of its own name, whose first deployment counts.
    pub(crate) fn new(
        group: impl Into<String>,
        strategy: &'static str,
        (mode, seed): (Mode, u64),
        cluster: Cluster,
    ) -> Self {
        Self {
            group: group.into(),
            system: strategy.to_owned(),
            seed,
            strategy,
            mode,
            cluster,
            counted: vec![0],
        }
    }

    pub(crate) fn play(&self) -> TrialResult {
        let cluster = Cluster {
            times: self.mode.times(self.strategy),
            seed: self.seed,
            ..self.cluster.clone()
        };
        let mut scaler = scaler(self.strategy, self.mode, &cluster);
        let outcome = cluster.run(scaler.as_mut());
        let is_counted = |deployment: usize| self.counted.contains(&deployment);
        let row = Row {
            group: self.group.clone(),
            system: self.system.clone(),
            x: 0.0,
            seed: self.seed,
            summary: None,
            more: figures::of(outcome.of(is_counted)),
        };
        TrialResult { row, outcome }
    }
}

/// Every strategy on a cluster with every seed, in both modes.
pub(crate) fn trials(
    context: &Context,
    seeds: u64,
    name: &str,
    strategies: &[&'static str],
    cluster: &Cluster,
) -> Vec<Trial> {
    let mut trials = Vec::new();
    for seed in context.seeds(seeds) {
        for mode in Mode::ALL {
            trials.extend(strategies.iter().map(|strategy| {
                Trial::new(mode.group(name), strategy, (mode, seed), cluster.clone())
            }));
        }
    }
    trials
}

impl Rows {
    /// The runs of a name in a mode.
    pub(crate) fn mode(&self, name: &str, mode: Mode) -> Panel<'_> {
        let group = mode.group(name);
        let row = self.0.iter().find(|row| row.group == group);
        self.at(row.map_or("", |row| &row.group), 0.0)
    }

    /// The runs of a name in both modes.
    pub(crate) fn modes(&self, name: &str) -> [Panel<'_>; 2] {
        Mode::ALL.map(|mode| self.mode(name, mode))
    }
}

/// The traces of the command line, or their twins.
pub(crate) fn traces(context: &Context) -> Arc<Traces> {
    match &context.effort.traces {
        Some(traces) => Arc::clone(traces),
        None => Arc::new(Traces::twins(context.first_seed())),
    }
}

/// Sentence of a report about the traffic.
pub(crate) fn about(traces: &Traces) -> String {
    if traces.is_recorded {
        "Traffic: the recorded weeks of --traces. Lengths of Office 365 are not published; Azure's conversation trace stands for them.".to_owned()
    } else {
        "Traffic: synthetic twins of the recorded weeks (profiles of days and weeks with noise); --traces DIRECTORY plays the recorded ones.".to_owned()
    }
}

/// A deployment of every region in the shared group.
pub(crate) fn deployment(name: &str, profile: &Arc<Profile>, traffic: Vec<Series>) -> Deployment {
    Deployment {
        name: name.to_owned(),
        profile: Arc::clone(profile),
        group: 0,
        start: START,
        bounds: BOUNDS,
        has_batch_manager: true,
        traffic,
    }
}

/// A cluster of these deployments; the first `warmup_s` of the traffic are not counted.
pub(crate) fn cluster(deployments: Vec<Deployment>, warmup_s: f64) -> Cluster {
    let traffic = || {
        deployments
            .iter()
            .flat_map(|deployment| &deployment.traffic)
    };
    Cluster {
        regions: deployments
            .first()
            .map_or(0, |deployment| deployment.traffic.len()),
        times: StartTimes::TEXT,
        batch: BatchRules::default(),
        region_utilisation: REGION_UTILISATION,
        length_s: traffic().map(Series::length_s).fold(0.0, f64::max),
        warmup_s,
        seed: 0,
        deployments,
    }
}
