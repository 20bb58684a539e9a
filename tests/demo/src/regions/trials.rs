//! Measurements of trials: each with clients of its own, in several arrangements.

use serde::Serialize;

use super::deployment::Arrangement;
use super::options::Clients;
use super::timeline::Timeline;
use crate::metrics::RequestMetrics;

/// All arrangements with the same clients.
#[derive(Clone, Debug, Serialize)]
pub struct TrialReport {
    /// Number of clients in each region over time.
    pub clients: Clients,
    /// Description of the clients in one sentence.
    pub description: String,
    /// Length of the measurement window, in seconds of the engines.
    pub measured_s: f64,
    /// Runs in order of execution.
    pub runs: Vec<ArrangementRun>,
}

/// The run of an arrangement.
#[derive(Clone, Debug, Serialize)]
pub struct ArrangementRun {
    /// Arrangement of the regions.
    pub arrangement: Arrangement,
    /// Replicas in all regions.
    pub replicas: usize,
    /// Share of this machine's CPU time that was used; `None` where the system does not report it.
    pub machine_busy_share: Option<f64>,
    /// Metrics of all clients.
    pub all: RequestMetrics,
    /// Metrics of the clients of each region.
    pub regions: Vec<RegionMetrics>,
    /// Load and forwarding over time.
    pub timeline: Timeline,
}

/// The metrics of one region's clients.
#[derive(Clone, Debug, Serialize)]
pub struct RegionMetrics {
    /// Name of the region.
    pub name: String,
    /// Metrics.
    #[serde(flatten)]
    pub metrics: RequestMetrics,
}

impl TrialReport {
    /// The run of an arrangement.
    #[must_use]
    pub fn run(&self, arrangement: Arrangement) -> Option<&ArrangementRun> {
        self.runs.iter().find(|run| run.arrangement == arrangement)
    }
}
