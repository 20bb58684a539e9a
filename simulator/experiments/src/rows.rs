//! Rows: every run, and statistics over the seeds.

use std::collections::{BTreeMap, BTreeSet};

use isotherm_report::Table;
use serde::Serialize;

use crate::figures::{Figure, Row};

/// Statistics over several values; all `NaN` without any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stat {
    pub(crate) mean: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Stat {
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        Self {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            min: values.iter().copied().fold(f64::NAN, f64::min),
            max: values.iter().copied().fold(f64::NAN, f64::max),
        }
    }
}

/// All runs of an experiment. A cell is the runs of a group, a system and a value of x, one for each seed.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Rows(pub(crate) Vec<Row>);

/// The runs of a group at a value of the varied parameter.
#[derive(Clone, Copy)]
pub(crate) struct Panel<'a> {
    rows: &'a Rows,
    pub(crate) group: &'a str,
    pub(crate) x: f64,
}

impl<'a> Panel<'a> {
    /// The runs of a cell.
    pub(crate) fn runs(self, system: &str) -> impl Iterator<Item = &'a Row> {
        let is_of =
            move |row: &&Row| row.group == self.group && row.system == system && row.x == self.x;
        self.rows.0.iter().filter(is_of)
    }

    /// Statistics of a figure over the seeds of a cell.
    pub(crate) fn stat(self, system: &str, figure: Figure) -> Stat {
        Stat::of(self.runs(system).map(|row| figure.value(row)))
    }

    /// Mean of a figure over the seeds of a cell.
    pub(crate) fn mean(self, system: &str, figure: Figure) -> f64 {
        self.stat(system, figure).mean
    }

    /// The mean as text.
    pub(crate) fn shown(self, system: &str, figure: Figure) -> String {
        (figure.format)(self.mean(system, figure))
    }

    /// The means of several systems as text.
    pub(crate) fn list(self, systems: &[&str], figure: Figure) -> String {
        let systems = systems.iter();
        let shown = systems.map(|system| format!("{system} {}", self.shown(system, figure)));
        shown.collect::<Vec<_>>().join(", ")
    }

    /// Ratio of the means of two systems.
    pub(crate) fn ratio(self, ours: &str, theirs: &str, figure: Figure) -> f64 {
        self.mean(ours, figure) / self.mean(theirs, figure)
    }

    /// The system with the best mean.
    pub(crate) fn best<'s>(
        self,
        systems: impl IntoIterator<Item = &'s str>,
        figure: Figure,
    ) -> Option<&'s str> {
        let sign = if figure.is_less_better { -1.0 } else { 1.0 };
        highest(systems, |system| sign * self.mean(system, figure))
    }
}

/// The system with the highest value.
pub(crate) fn highest<'s>(
    systems: impl IntoIterator<Item = &'s str>,
    value: impl Fn(&str) -> f64,
) -> Option<&'s str> {
    let systems = systems.into_iter();
    systems.max_by(|a, b| value(a).total_cmp(&value(b)))
}

impl Rows {
    /// The runs of a group at a value of the varied parameter.
    pub(crate) fn at<'a>(&'a self, group: &'a str, x: f64) -> Panel<'a> {
        let rows = self;
        Panel { rows, group, x }
    }

    /// The first row of each cell, in the order of the rows.
    pub(crate) fn cells(&self) -> Vec<&Row> {
        let cell = |row: &Row| (row.group.clone(), row.system.clone(), row.x.to_bits());
        let mut known = BTreeSet::new();
        let rows = self.0.iter();
        rows.filter(|row| known.insert(cell(row))).collect()
    }

    /// The rows that a predicate selects.
    pub(crate) fn filtered(&self, is_wanted: impl Fn(&Row) -> bool) -> Self {
        let rows = self.0.iter().filter(|row| is_wanted(row));
        Self(rows.cloned().collect())
    }

    /// Values of the varied parameter in ascending order, each once.
    pub(crate) fn xs(&self, group: &str) -> Vec<f64> {
        let of_group = self.0.iter().filter(|row| row.group == group);
        let mut xs: Vec<f64> = of_group.map(|row| row.x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }

    /// A line for each cell: the group, the varied parameter if there is one, the system, and the means of figures.
    pub(crate) fn table(&self, varied: &str, figures: &[Figure]) -> Table {
        let is_varied = self.0.iter().any(|row| row.x != 0.0);
        let varied = is_varied.then(|| varied.to_owned());
        let columns = ["group".to_owned()].into_iter().chain(varied);
        let columns = columns.chain(["system".to_owned()]);
        Table::new(columns.chain(figures.iter().map(Figure::column))).with_rows(
            self.cells().into_iter().map(|row| {
                let panel = self.at(&row.group, row.x);
                let x = is_varied.then(|| row.x.to_string());
                let head = [row.group.clone()].into_iter().chain(x);
                let shown = figures
                    .iter()
                    .map(move |figure| panel.shown(&row.system, *figure));
                head.chain([row.system.clone()]).chain(shown)
            }),
        )
    }

    /// A line for each run, its figures in the order of their names.
    pub(crate) fn runs(&self) -> Table {
        let figures: Vec<BTreeMap<String, f64>> = self.0.iter().map(Row::figures).collect();
        let mut names: Vec<&String> = figures.iter().flat_map(BTreeMap::keys).collect();
        names.sort_unstable();
        names.dedup();
        let columns = ["group", "system", "x", "seed"].into_iter();
        let mut table = Table::new(columns.chain(names.iter().map(|name| name.as_str())));
        for (row, figures) in self.0.iter().zip(&figures) {
            let (x, seed) = (row.x.to_string(), row.seed.to_string());
            let head = [row.group.clone(), row.system.clone(), x, seed];
            let cell = |name: &&String| figures.get(*name).map_or_else(String::new, f64::to_string);
            table.push(head.into_iter().chain(names.iter().map(cell)));
        }
        table
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use isotherm_simulator::Summary;

    use super::*;
    use crate::figures::{HITS, TOKENS};

    pub(crate) fn row(group: &str, system: &str, x: f64, seed: u64, tokens: f64) -> Row {
        Row {
            group: group.into(),
            system: system.into(),
            x,
            seed,
            summary: Some(Summary {
                throughput_tokens_per_s: tokens,
                ..Summary::default()
            }),
            more: BTreeMap::from([("busy_share", 0.5)]),
        }
    }

    #[test]
    fn seeds_of_a_cell_make_a_mean_and_a_spread() {
        let rows = Rows(vec![
            row("w", "a", 2.0, 1, 10.0),
            row("w", "a", 2.0, 2, 30.0),
            row("w", "b", 2.0, 1, 5.0),
            row("w", "a", 1.0, 1, 99.0),
        ]);
        let stat = rows.at("w", 2.0).stat("a", TOKENS);
        assert_eq!((stat.mean, stat.min, stat.max), (20.0, 10.0, 30.0));
        assert_eq!(rows.at("w", 2.0).ratio("a", "b", TOKENS), 4.0);
        assert_eq!(rows.xs("w"), [1.0, 2.0]);
        assert!(rows.at("w", 2.0).mean("c", TOKENS).is_nan());
    }

    #[test]
    fn a_table_has_a_line_for_each_cell_and_the_varied_parameter_if_there_is_one() {
        let rows = [(1, 10.0), (2, 30.0)].map(|(seed, tokens)| row("w", "a", 2.0, seed, tokens));
        let varied = Rows(rows.into()).table("rate", &[TOKENS, HITS]);
        let csv = "group,rate,system,\"throughput, tokens/s\",\"cache hits, %\"\nw,2,a,20.0,0.0\n";
        assert_eq!(varied.csv().unwrap(), csv);
        let plain = Rows(vec![row("w", "a", 0.0, 1, 5.0)]).table("rate", &[TOKENS]);
        assert_eq!(plain.columns, ["group", "system", "throughput, tokens/s"]);
    }

    #[test]
    fn the_csv_has_every_figure_of_every_run() {
        let rows = Rows(vec![row("w, \"x\"", "a", 0.0, 7, 10.5)]);
        let csv = rows.runs().csv().unwrap();
        let (head, line) = csv.trim_end().split_once('\n').unwrap();
        assert!(head.starts_with("group,system,x,seed,busy_share,"));
        assert!(line.starts_with("\"w, \"\"x\"\"\",a,0,7,0.5,"));
        let column = head
            .split(',')
            .position(|name| name == "throughput_tokens_per_s");
        let value = line.rsplit(',').collect::<Vec<_>>();
        let from_end = head.split(',').count() - 1 - column.unwrap();
        assert_eq!(value[from_end], "10.5");
    }
}
