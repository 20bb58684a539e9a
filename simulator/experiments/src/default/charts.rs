//! The ratios as bars and as a table.

use isotherm_report::Table;
use isotherm_report::chart::{BarGroup, Bars, Chart, Plot};
use isotherm_report::number::{short, times};

use super::ORACLE;
use super::ranking::{Comparison, GOALS, YARDSTICK, comparisons, mean_ratio, ratio_to_best};
use crate::charts::bar;
use crate::rows::{Rows, Stat};

/// Groups of bars in a chart.
const GROUPS_EACH: usize = 4;

pub(crate) fn overview(rows: &Rows, groups: &[&str], others: &[&str]) -> Vec<Chart> {
    let ratio = |one: Comparison| {
        bar(Stat {
            mean: one.ratio,
            ..one.spread
        })
    };
    let group = |name: &&str| BarGroup {
        name: (*name).to_owned(),
        bars: comparisons(rows.at(name, 0.0), others)
            .into_iter()
            .map(ratio)
            .collect(),
    };
    let chart = |some: &[&str]| {
        let plot = Bars {
            groups: some.iter().map(group).collect(),
            reference: Some((1.0, "the best other".to_owned())),
            format: short,
        };
        let goals = GOALS.map(|goal| goal.name);
        Chart {
            size: (640, 300),
            ..Chart::new(some.join(", "), "", goals, Plot::Bars(plot))
        }
    };
    groups.chunks(GROUPS_EACH).map(chart).collect()
}

pub(crate) fn ratios(rows: &Rows, groups: &[&str], others: &[&str]) -> Table {
    let columns = GOALS.iter().flat_map(|goal| {
        let first = format!("{}: over the best other", goal.name);
        let others = ["seed by seed", "best other", "among all", "over the oracle"];
        core::iter::once(first).chain(others.map(String::from))
    });
    let columns = core::iter::once("workload".to_owned()).chain(columns);
    Table::new(columns).with_rows(groups.iter().map(|group| {
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
    }))
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
