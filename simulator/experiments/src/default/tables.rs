//! The ratios as tables.

use isotherm_report::Table;
use isotherm_report::number::{short, times};

use super::ORACLE;
use super::ranking::{GOALS, YARDSTICK, comparisons, mean_ratio, ratio_to_best};
use crate::rows::Rows;

pub(crate) fn ratios(rows: &Rows, groups: &[&str], others: &[&str]) -> Table {
    let columns = GOALS.iter().flat_map(|goal| {
        let first = format!("{}: over the best other", goal.name);
        let others = ["seed by seed", "best other", "among all", "over the oracle"];
        core::iter::once(first).chain(others.map(String::from))
    });
    let columns = core::iter::once("workload".to_owned()).chain(columns);
    let shown = GOALS.map(|goal| format!("{}: over the best other", goal.name));
    let [one, two, three] = shown.each_ref().map(String::as_str);
    let table = Table::new(columns).with_rows(groups.iter().map(|group| {
        let panel = rows.at(group, 0.0);
        let cells = GOALS.into_iter().zip(comparisons(panel, others));
        let cells = cells.flat_map(|(goal, one)| {
            [
                times(one.ratio),
                format!("{} to {}", short(one.spread.min), short(one.spread.max)),
                one.against,
                one.rank.label().to_owned(),
                times(mean_ratio(panel, goal, ORACLE)),
            ]
        });
        core::iter::once((*group).to_owned())
            .chain(cells)
            .collect::<Vec<_>>()
    }));
    table.headline(&["workload", one, two, three], |_| true)
}

/// Ratio to the best other system on every figure of the fixed yardstick.
pub(crate) fn yardstick(rows: &Rows, groups: &[&str], others: &[&str]) -> Table {
    let names = YARDSTICK.map(|figure| figure.name);
    let columns = core::iter::once("workload").chain(names);
    Table::new(columns).with_rows(groups.iter().map(|group| {
        let cell = |figure| {
            let best = ratio_to_best(rows.at(group, 0.0), figure, others);
            best.map_or_else(String::new, |(ratio, best)| {
                format!("{} of {best}", times(ratio))
            })
        };
        core::iter::once((*group).to_owned())
            .chain(YARDSTICK.map(cell))
            .collect::<Vec<_>>()
    }))
}
