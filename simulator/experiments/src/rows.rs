//! Rows: the figures of every run, and their statistics over the seeds.

use std::collections::BTreeMap;

use isotherm_report::Table;
use isotherm_simulator::Summary;
use serde::Serialize;
use serde_json::Value;

/// A run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Panel of the figure: mostly the workload.
    pub(crate) group: String,
    /// System under test.
    pub(crate) system: String,
    /// Value of the varied parameter, such as a rate or a number of replicas; zero when the group varies none.
    pub(crate) x: f64,
    /// Seed of the workload and of the run.
    pub(crate) seed: u64,
    pub(crate) summary: Summary,
    /// Figures beyond the summary.
    pub(crate) more: BTreeMap<&'static str, f64>,
}

impl Row {
    /// Every figure by name, as in the CSV file.
    fn figures(&self) -> BTreeMap<String, f64> {
        let summary = serde_json::to_value(&self.summary).unwrap_or(Value::Null);
        let of_summary = summary.as_object().into_iter().flatten();
        let more = self
            .more
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value));
        of_summary
            .filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)))
            .chain(more)
            .collect()
    }

    fn is_of(&self, group: &str, system: &str, x: f64) -> bool {
        self.group == group && self.system == system && self.x == x
    }
}

/// Statistics over several values; all `NaN` without any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stat {
    pub(crate) mean: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Stat {
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let (mut sum, mut count) = (0.0, 0.0);
        let (mut min, mut max) = (f64::NAN, f64::NAN);
        for value in values {
            sum += value;
            count += 1.0;
            min = min.min(value);
            max = max.max(value);
        }
        Self {
            mean: sum / count,
            min,
            max,
        }
    }
}

/// All runs of an experiment. A cell is the runs of a group, a system and a value of x, one for each seed.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Rows(pub(crate) Vec<Row>);

impl Rows {
    /// The runs of a cell.
    pub(crate) fn of<'a>(
        &'a self,
        group: &'a str,
        system: &'a str,
        x: f64,
    ) -> impl Iterator<Item = &'a Row> {
        self.0.iter().filter(move |row| row.is_of(group, system, x))
    }

    /// The first row of each cell, in the order of the rows.
    pub(crate) fn cells(&self) -> Vec<&Row> {
        let mut cells: Vec<&Row> = Vec::new();
        for row in &self.0 {
            if !cells
                .iter()
                .any(|cell| cell.is_of(&row.group, &row.system, row.x))
            {
                cells.push(row);
            }
        }
        cells
    }

    /// The rows that a predicate selects.
    pub(crate) fn filtered(&self, is_wanted: impl Fn(&Row) -> bool) -> Self {
        Self(
            self.0
                .iter()
                .filter(|row| is_wanted(row))
                .cloned()
                .collect(),
        )
    }

    /// Statistics of a figure over the seeds of a cell.
    pub(crate) fn stat(
        &self,
        group: &str,
        system: &str,
        x: f64,
        figure: impl Fn(&Row) -> f64,
    ) -> Stat {
        Stat::of(self.of(group, system, x).map(figure))
    }

    /// Mean of a figure over the seeds of a cell.
    pub(crate) fn mean(
        &self,
        group: &str,
        system: &str,
        x: f64,
        figure: impl Fn(&Row) -> f64,
    ) -> f64 {
        self.stat(group, system, x, figure).mean
    }

    /// Ratio of the means of two systems.
    pub(crate) fn ratio(
        &self,
        group: &str,
        (ours, theirs): (&str, &str),
        x: f64,
        figure: impl Fn(&Row) -> f64,
    ) -> f64 {
        self.mean(group, ours, x, &figure) / self.mean(group, theirs, x, &figure)
    }

    /// The system with the highest mean.
    pub(crate) fn best<'a>(
        systems: impl IntoIterator<Item = &'a str>,
        mean: impl Fn(&str) -> f64,
    ) -> Option<&'a str> {
        systems
            .into_iter()
            .max_by(|a, b| mean(a).total_cmp(&mean(b)))
    }

    /// Values of the varied parameter in ascending order, each once.
    pub(crate) fn xs(&self, group: &str) -> Vec<f64> {
        let of_group = self.0.iter().filter(|row| row.group == group);
        let mut xs: Vec<f64> = of_group.map(|row| row.x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }

    /// A line for each run, its figures in the order of their names.
    pub(crate) fn table(&self) -> Table {
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
    use super::*;
    use crate::figures::tokens;

    pub(crate) fn row(group: &str, system: &str, x: f64, seed: u64, tokens: f64) -> Row {
        Row {
            group: group.into(),
            system: system.into(),
            x,
            seed,
            summary: Summary {
                throughput_tokens_per_s: tokens,
                ..Summary::default()
            },
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
        let stat = rows.stat("w", "a", 2.0, tokens);
        assert_eq!((stat.mean, stat.min, stat.max), (20.0, 10.0, 30.0));
        assert_eq!(rows.ratio("w", ("a", "b"), 2.0, tokens), 4.0);
        assert_eq!(rows.xs("w"), [1.0, 2.0]);
        assert!(rows.mean("w", "c", 2.0, tokens).is_nan());
    }

    #[test]
    fn the_csv_has_every_figure_of_every_run() {
        let rows = Rows(vec![row("w, \"x\"", "a", 0.0, 7, 10.5)]);
        let csv = rows.table().csv();
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
