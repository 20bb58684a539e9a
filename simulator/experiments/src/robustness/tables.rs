//! Tables of the cells.

use isotherm_report::Table;
use isotherm_report::number::{short, times};

use super::OURS;
use super::cells::{Cell, FigureRatio};
use super::plan::{Plan, group};
use crate::figures::{FAILED, GOODPUTS, HITS, P50, P90, P99};
use crate::rows::Rows;

/// A line for each cell: the ratio of every figure to the best other system, and that system.
pub(super) fn cells(cells: &[Cell]) -> Table {
    let goodputs = GOODPUTS.map(|figure| figure.name);
    let percentiles = [P50, P90, P99].map(|figure| figure.name);
    let figures = goodputs.into_iter().chain(percentiles);
    let columns = ["workload", "telemetry"].into_iter().chain(figures);
    Table::new(columns.chain(["holds"])).with_rows(cells.iter().map(|cell| {
        let head = [cell.workload.to_owned(), cell.telemetry.as_str().to_owned()];
        let figures = cell.goodputs.iter().chain(&cell.percentiles).map(shown);
        let holds = if cell.holds() { "yes" } else { "no" };
        head.into_iter()
            .chain(figures)
            .chain([holds.to_owned()])
            .collect::<Vec<_>>()
    }))
}

fn shown(one: &FigureRatio) -> String {
    format!("{} of {}", times(one.ratio), one.best_other)
}

/// The default policy's own figures with each telemetry profile.
pub(super) fn profiles(plan: &Plan, rows: &Rows) -> Table {
    let figures = [P50, P90, P99, HITS, FAILED];
    let goodputs = GOODPUTS.map(|figure| figure.name).into_iter();
    let names = goodputs.chain(figures.map(|figure| figure.name));
    let columns = ["workload", "telemetry"].into_iter().chain(names);
    let mut table = Table::new(columns);
    for workload in &plan.workloads {
        for &telemetry in &plan.telemetry {
            let group = group(workload.name, telemetry);
            let panel = rows.at(&group, 0.0);
            let goodputs = GOODPUTS.map(|figure| short(panel.mean(OURS, figure)));
            let others = figures.map(|figure| panel.shown(OURS, figure));
            let head = [workload.name.to_owned(), telemetry.as_str().to_owned()];
            table.push(head.into_iter().chain(goodputs).chain(others));
        }
    }
    table
}
