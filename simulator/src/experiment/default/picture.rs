//! The ratios as bars and as a table.

use isotherm_report::chart::{Bar, BarGroup, Bars, Chart};
use isotherm_report::number::{short, times};

use super::super::document::Table;
use super::super::rows::Rows;
use super::verdict::{GOALS, verdicts};
use super::{ORACLE, OURS};

/// Groups of bars that fit a chart.
const GROUPS_EACH: usize = 4;

pub(super) fn overview(
    rows: &Rows,
    groups: &[&str],
    others: &[String],
) -> anyhow::Result<Vec<Chart>> {
    groups
        .chunks(GROUPS_EACH)
        .map(|some| {
            let group = |name: &&str| BarGroup {
                name: (*name).to_owned(),
                bars: verdicts(rows, name, others)
                    .iter()
                    .map(|verdict| Bar {
                        value: verdict.ratio,
                        spread: (verdict.spread.min < verdict.spread.max)
                            .then_some((verdict.spread.min, verdict.spread.max)),
                    })
                    .collect(),
            };
            let chart = Bars {
                groups: some.iter().map(group).collect(),
                reference: Some((1.0, "the best other".to_owned())),
                format: short,
            };
            Ok(Chart::new(some.join(", "), "", chart).with_size((640, 300)))
        })
        .collect()
}

pub(super) fn ratios(rows: &Rows, groups: &[&str], others: &[String]) -> Table {
    let mut heads = vec!["workload".to_owned()];
    for goal in &GOALS {
        heads.push(format!("{}: over the best other", goal.name));
        heads.push("seed by seed".to_owned());
        heads.push("which is".to_owned());
        heads.push("among all".to_owned());
        heads.push("over the oracle".to_owned());
    }
    let line = |group: &&str| {
        let mut line = vec![(*group).to_owned()];
        for (goal, verdict) in GOALS.iter().zip(verdicts(rows, group, others)) {
            let oracle = goal.ratio(goal.mean(rows, group, OURS), goal.mean(rows, group, ORACLE));
            line.push(times(verdict.ratio));
            line.push(format!(
                "{} to {}",
                short(verdict.spread.min),
                short(verdict.spread.max)
            ));
            line.push(verdict.against);
            line.push(verdict.standing.said().to_owned());
            line.push(times(oracle));
        }
        line
    };
    Table {
        heads,
        lines: groups.iter().map(line).collect(),
    }
}
