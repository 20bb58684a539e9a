//! Tables of the cells.

use isotherm_report::Table;
use isotherm_report::number::times;

use super::OURS;
use super::cells::{Cell, FigureRatio};
use crate::figures::{FAILED, GOODPUTS, HITS, P50, P90, P99};
use crate::rows::Rows;

/// A line for each cell: the ratio of every figure to the best other system, and that system. The headline has the cells that fall
/// short.
pub(super) fn cells(cells: &[Cell]) -> Table {
    let goodputs = GOODPUTS.map(|figure| figure.name);
    let percentiles = [P50, P90, P99].map(|figure| figure.name);
    let figures = goodputs.into_iter().chain(percentiles);
    let columns = ["workload", "telemetry"].into_iter().chain(figures);
    let headline = ["workload", "telemetry", GOODPUTS[0].name, P90.name];
    let table = Table::new(columns.chain(["holds"])).with_rows(cells.iter().map(|cell| {
        let head = [cell.workload.to_owned(), cell.telemetry.as_str().to_owned()];
        let figures = cell.goodputs.iter().chain(&cell.percentiles).map(shown);
        let holds = if cell.holds() { "yes" } else { "no" };
        head.into_iter()
            .chain(figures)
            .chain([holds.to_owned()])
            .collect::<Vec<_>>()
    }));
    let last = table.columns.len().saturating_sub(1);
    table.headline(&headline, |row| row.text(last) == "no")
}

fn shown(one: &FigureRatio) -> String {
    format!("{} of {}", times(one.ratio), one.best_other)
}

/// The default policy's own figures in each cell.
pub(super) fn profiles(rows: &Rows) -> Table {
    let figures = [GOODPUTS.as_slice(), &[P50, P90, P99, HITS, FAILED]].concat();
    rows.filtered(|row| row.system == OURS).table("", &figures)
}
