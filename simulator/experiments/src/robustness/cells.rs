//! The judgement of a cell: the default policy against the best other system of each figure.

use isotherm_simulator::Telemetry;

use super::OURS;
use super::plan::{Plan, group};
use crate::figures::{Figure, GOODPUTS, P50, P90, P99};
use crate::rows::{Panel, Rows};

/// Goodput that holds, of the best other system's.
pub(super) const GOODPUT_MIN: f64 = 0.98;
/// The p90 of the time to first token that holds, as a multiple of the best other system's.
pub(super) const P90_MAX: f64 = 1.05;

/// A figure against the best other system of that figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FigureRatio {
    pub(super) figure: &'static str,
    /// Ours over theirs.
    pub(super) ratio: f64,
    pub(super) best_other: String,
}

/// A workload with a telemetry profile.
pub(super) struct Cell {
    pub(super) workload: &'static str,
    pub(super) telemetry: Telemetry,
    /// Goodput at each of the fixed objectives.
    pub(super) goodputs: Vec<FigureRatio>,
    /// Percentiles 50, 90 and 99 of the time to first token; only the p90 decides.
    pub(super) percentiles: Vec<FigureRatio>,
}

impl Cell {
    /// The figures that fall short.
    pub(super) fn shortfalls(&self) -> impl Iterator<Item = &FigureRatio> {
        let goodputs = self.goodputs.iter().filter(|one| !holds_goodput(one.ratio));
        goodputs.chain(self.p90().filter(|p90| !holds_p90(p90.ratio)))
    }

    pub(super) fn holds(&self) -> bool {
        self.shortfalls().next().is_none()
    }

    pub(super) fn p90(&self) -> Option<&FigureRatio> {
        self.percentiles.iter().find(|one| one.figure == P90.name)
    }
}

pub(super) fn holds_goodput(ratio: f64) -> bool {
    ratio >= GOODPUT_MIN
}

pub(super) fn holds_p90(ratio: f64) -> bool {
    ratio <= P90_MAX
}

/// Every cell of a plan.
pub(super) fn judge(plan: &Plan, rows: &Rows) -> Vec<Cell> {
    let of = |workload: &'static str, telemetry| {
        let group = group(workload, telemetry);
        cell(rows.at(&group, 0.0), workload, telemetry, rows)
    };
    let workloads = plan.workloads.iter();
    workloads
        .flat_map(|workload| {
            plan.telemetry
                .iter()
                .map(|profile| of(workload.name, *profile))
        })
        .collect()
}

fn cell(panel: Panel<'_>, workload: &'static str, telemetry: Telemetry, rows: &Rows) -> Cell {
    let others = others(rows, panel.group);
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    let standing = |figure: Figure| {
        let best = panel.best(others.iter().copied(), figure)?;
        let (ours, theirs) = (panel.mean(OURS, figure), panel.mean(best, figure));
        Some(FigureRatio {
            figure: figure.name,
            // Two infinite times are equal.
            ratio: if ours == theirs { 1.0 } else { ours / theirs },
            best_other: best.to_owned(),
        })
    };
    Cell {
        workload,
        telemetry,
        goodputs: GOODPUTS.into_iter().filter_map(standing).collect(),
        percentiles: [P50, P90, P99].into_iter().filter_map(standing).collect(),
    }
}

/// Other systems of a group.
fn others(rows: &Rows, group: &str) -> Vec<String> {
    let of_group = rows.0.iter().filter(|row| row.group == group);
    let mut names: Vec<String> = Vec::new();
    for row in of_group.filter(|row| row.system != OURS) {
        if !names.contains(&row.system) {
            names.push(row.system.clone());
        }
    }
    names
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::figures::Row;
    use crate::rows::tests::row;

    /// A run with this goodput at every objective, and this p90.
    pub(in super::super) fn run(group: &str, system: &str, goodput: f64, p90_s: f64) -> Row {
        let mut row = row(group, system, 0.0, 1, 1.0);
        let summary = row.summary.as_mut().unwrap();
        (summary.goodput_1s_per_s, summary.goodput_2s_per_s) = (goodput, goodput);
        (summary.goodput_5s_per_s, summary.goodput_10s_per_s) = (goodput, goodput);
        (summary.ttft_p50_s, summary.ttft_p90_s, summary.ttft_p99_s) = (1.0, p90_s, 9.0);
        row
    }

    fn judged(runs: [(f64, f64); 3]) -> Cell {
        let systems = [OURS, "a", "b"].into_iter().zip(runs);
        let rows = systems.map(|(system, (goodput, p90))| run("w, full", system, goodput, p90));
        let rows = Rows(rows.collect());
        cell(rows.at("w, full", 0.0), "w", Telemetry::Full, &rows)
    }

    #[test]
    fn a_cell_holds_beside_the_best_other_of_each_figure() {
        assert!(judged([(9.9, 1.04), (10.0, 2.0), (5.0, 1.0)]).holds());
        let slow = judged([(10.0, 1.06), (10.0, 2.0), (5.0, 1.0)]);
        let shortfalls: Vec<&FigureRatio> = slow.shortfalls().collect();
        assert_eq!(shortfalls.len(), 1);
        assert_eq!(
            (shortfalls[0].figure, &*shortfalls[0].best_other),
            ("p90 TTFT", "b")
        );
        let few = judged([(9.7, 1.0), (10.0, 2.0), (5.0, 1.0)]);
        assert_eq!(few.shortfalls().count(), 4, "at every objective");
    }

    #[test]
    fn a_policy_whose_p90_is_a_refusal_falls_short_unless_every_other_refuses_as_much() {
        let never = f64::INFINITY;
        assert!(!judged([(10.0, never), (10.0, never), (5.0, 1.0)]).holds());
        assert!(judged([(10.0, never), (10.0, never), (5.0, never)]).holds());
    }
}
