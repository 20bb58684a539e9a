//! The runs: workloads, telemetry profiles and systems.

use std::sync::Arc;

use isotherm_simulator::workload::adverse::{POOLS, adverse, pool};
use isotherm_simulator::workload::standard::{Standard, standard};
use isotherm_simulator::workload::yardstick::yardstick;
use isotherm_simulator::{Setup, Telemetry};

use super::rivals::systems;
use crate::context::{Case, Effort, WorkloadSource};

/// Length of a quick run's workloads, as a share of the full length.
const QUICK_SCALE: f64 = 0.25;
/// Pools of a quick run; larger ones take most of the time.
const QUICK_POOLS: usize = 2;

/// Workloads and telemetry profiles of an experiment.
pub(super) struct Plan {
    pub(super) workloads: Vec<Standard>,
    pub(super) telemetry: Vec<Telemetry>,
    /// Length of the workloads, as a share of the full length.
    pub(super) scale: f64,
}

/// Name of the rows of a cell.
pub(super) fn group(workload: &str, telemetry: Telemetry) -> String {
    format!("{workload}, {}", telemetry.as_str())
}

impl Plan {
    pub(super) fn new(effort: &Effort) -> Self {
        let scale = if effort.quick { QUICK_SCALE } else { 1.0 };
        let pools = match &effort.pools[..] {
            [] if effort.quick => POOLS.get(..QUICK_POOLS).unwrap_or(&POOLS),
            [] => &POOLS,
            pools => pools,
        };
        let pools = pools.iter().map(|replicas| pool(*replicas));
        let small = standard().into_iter().chain(adverse()).chain(yardstick());
        let all = small.chain(pools);
        let is_wanted = |one: &Standard| {
            effort.workloads.is_empty() || effort.workloads.iter().any(|name| name == one.name)
        };
        Self {
            workloads: all
                .filter(is_wanted)
                .map(|standard| standard.scaled(scale))
                .collect(),
            telemetry: match effort.telemetry {
                Some(telemetry) => vec![telemetry],
                None => Telemetry::ALL.into(),
            },
            scale,
        }
    }

    /// Every workload with every telemetry profile and every system.
    pub(super) fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for workload in &self.workloads {
            let drawn = workload.clone();
            let source: WorkloadSource = Arc::new(move |seed| drawn.workload(seed));
            for &telemetry in &self.telemetry {
                for system in systems(workload.regions.len()) {
                    cases.push(Case {
                        group: group(workload.name, telemetry),
                        setup: Setup {
                            telemetry,
                            ..workload.setup(0, system.arrangement)
                        },
                        system: system.name,
                        x: 0.0,
                        source: source.clone(),
                    });
                }
            }
        }
        cases
    }
}
