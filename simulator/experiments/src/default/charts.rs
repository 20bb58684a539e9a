//! The ratios as bars and as a table.

use isotherm_report::Table;
use isotherm_report::chart::{BarGroup, Bars, Chart};
use isotherm_report::number::{short, times};

use super::ranking::{Comparison, GOALS, comparisons};
use super::{ORACLE, OURS};
use crate::charts::bar;
use crate::rows::{Rows, Stat};

/// Groups of bars in a chart.
const GROUPS_EACH: usize = 4;

pub(crate) fn overview(rows: &Rows, groups: &[&str], others: &[String]) -> Vec<Chart> {
    let ratio = |one: &Comparison| {
        bar(Stat {
            mean: one.ratio,
            ..one.spread
        })
    };
    let group = |name: &&str| BarGroup {
        name: (*name).to_owned(),
        bars: comparisons(rows, name, others).iter().map(ratio).collect(),
    };
    let chart = |some: &[&str]| {
        let plot = Bars {
            groups: some.iter().map(group).collect(),
            reference: Some((1.0, "the best other".to_owned())),
            format: short,
        };
        let names = GOALS.iter().map(|goal| goal.name);
        Chart::new(some.join(", "), "", plot)
            .with_size((640, 300))
            .with_series(names)
    };
    groups.chunks(GROUPS_EACH).map(chart).collect()
}

pub(crate) fn ratios(rows: &Rows, groups: &[&str], others: &[String]) -> Table {
    let mut columns = vec!["workload".to_owned()];
    for goal in &GOALS {
        columns.push(format!("{}: over the best other", goal.name));
        columns.extend(
            ["seed by seed", "best other", "among all", "over the oracle"].map(String::from),
        );
    }
    Table::new(columns).with_rows(groups.iter().map(|group| {
        let mut cells = vec![(*group).to_owned()];
        for (goal, one) in GOALS.iter().zip(comparisons(rows, group, others)) {
            let oracle = goal.ratio(goal.mean(rows, group, OURS), goal.mean(rows, group, ORACLE));
            cells.extend([
                times(one.ratio),
                format!("{} to {}", short(one.spread.min), short(one.spread.max)),
                one.against,
                one.rank.label().to_owned(),
                times(oracle),
            ]);
        }
        cells
    }))
}
