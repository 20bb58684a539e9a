//! The cells: workloads, each with a telemetry profile.

use isotherm_simulator::Telemetry;
use isotherm_simulator::workload::catalogue;
use isotherm_simulator::workload::standard::Standard;

use super::QUICK_SCALE;
use crate::context::Effort;

/// Pools that take longer than all other workloads together.
const LARGE_POOLS: [&str; 2] = ["pool-128", "pool-512"];
/// Workloads that run with every telemetry profile.
const WITH_EVERY_PROFILE: [&str; 3] = ["bursty", "diurnal", "images"];

/// A workload with a telemetry profile.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) name: String,
    pub(super) workload: Standard,
    pub(super) telemetry: Telemetry,
}

/// The cells of an experiment: every workload with full telemetry, and a few with each of the other profiles.
pub(super) fn cells(effort: &Effort) -> Vec<Cell> {
    let is_wanted = |one: &Standard| {
        let names = &effort.workloads;
        let is_large = LARGE_POOLS.contains(&one.name);
        (names.is_empty() && !is_large) || names.iter().any(|name| name == one.name)
    };
    let scale = if effort.quick { QUICK_SCALE } else { 1.0 };
    let workloads = catalogue::all().into_iter().filter(is_wanted);
    let workloads: Vec<Standard> = workloads.map(|one| one.scaled(scale)).collect();
    let all = || Telemetry::ALL.into_iter();
    let with_profiles = all().flat_map(|profile| {
        let is_first = profile == effort.telemetry.unwrap_or_default();
        let runs = move |one: &&Standard| is_first || WITH_EVERY_PROFILE.contains(&one.name);
        let is_played = is_first || effort.telemetry.is_none();
        let workloads = workloads.iter().filter(move |one| is_played && runs(one));
        workloads.map(move |one| cell(one, profile))
    });
    with_profiles.collect()
}

fn cell(workload: &Standard, telemetry: Telemetry) -> Cell {
    let name = match telemetry {
        Telemetry::Full => workload.name.to_owned(),
        _ => format!("{}, {}", workload.name, telemetry.as_str()),
    };
    Cell {
        name,
        workload: workload.clone(),
        telemetry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_workloads_run_with_every_telemetry_profile() {
        let all = cells(&Effort::default());
        let count = |profile| all.iter().filter(|cell| cell.telemetry == profile).count();
        assert_eq!(count(Telemetry::Opaque), 3);
        assert_eq!(
            all.len(),
            count(Telemetry::Full) + 3 * (Telemetry::ALL.len() - 1)
        );
        assert!(all.iter().all(|cell| !cell.name.contains("pool-512")));
    }

    #[test]
    fn the_command_line_chooses_workloads_and_a_profile() {
        let effort = Effort {
            workloads: vec!["bursty".to_owned(), "tools-past".to_owned()],
            ..Effort::default()
        };
        assert_eq!(cells(&effort).len(), 2 + 5);
        let effort = Effort {
            telemetry: Some(Telemetry::Opaque),
            ..effort
        };
        let names: Vec<String> = cells(&effort).into_iter().map(|cell| cell.name).collect();
        assert_eq!(names, ["tools-past, opaque", "bursty, opaque"]);
    }
}
