//! What runs gave: one row each, and what several seeds say together.

use std::collections::BTreeMap;

use isotherm_report::Table;
use serde::Serialize;
use serde_json::Value;

use crate::summary::Summary;

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The panel: mostly the workload.
    pub group: String,
    /// What is compared.
    pub system: String,
    /// The figure that is turned, such as a rate or a number of replicas; zero where none is.
    pub x: f64,
    /// What the workload and the run were drawn from.
    pub seed: u64,
    /// The figures of the run.
    pub summary: Summary,
    /// Figures of this experiment alone.
    pub more: BTreeMap<&'static str, f64>,
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
}

/// Several runs of the same, over seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stat {
    /// Their mean.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Stat {
    /// Of these values; all `NaN` when there are none.
    #[must_use]
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let (mut sum, mut count) = (0.0, 0_u32);
        let (mut min, mut max) = (f64::NAN, f64::NAN);
        for value in values {
            sum += value;
            count += 1;
            min = min.min(value);
            max = max.max(value);
        }
        Self {
            mean: if count > 0 {
                sum / f64::from(count)
            } else {
                f64::NAN
            },
            min,
            max,
        }
    }
}

/// All runs of an experiment.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Rows(pub Vec<Row>);

impl Rows {
    /// The runs of one cell.
    pub fn of<'a>(
        &'a self,
        group: &'a str,
        system: &'a str,
        x: f64,
    ) -> impl Iterator<Item = &'a Row> {
        self.0
            .iter()
            .filter(move |row| row.group == group && row.system == system && row.x == x)
    }

    /// A figure of one cell over its seeds.
    #[must_use]
    pub fn stat(&self, group: &str, system: &str, x: f64, figure: impl Fn(&Row) -> f64) -> Stat {
        Stat::of(self.of(group, system, x).map(figure))
    }

    /// The mean of a figure of one cell over its seeds.
    #[must_use]
    pub fn mean(&self, group: &str, system: &str, x: f64, figure: impl Fn(&Row) -> f64) -> f64 {
        self.stat(group, system, x, figure).mean
    }

    /// How many times the mean of one system the mean of another is.
    #[must_use]
    pub fn ratio(
        &self,
        group: &str,
        (ours, theirs): (&str, &str),
        x: f64,
        figure: impl Fn(&Row) -> f64,
    ) -> f64 {
        self.mean(group, ours, x, &figure) / self.mean(group, theirs, x, &figure)
    }

    /// The figures that were turned, in order, each once.
    #[must_use]
    pub fn xs(&self, group: &str) -> Vec<f64> {
        let mut xs: Vec<f64> = self
            .0
            .iter()
            .filter(|row| row.group == group)
            .map(|row| row.x)
            .collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }

    /// A line for each run, its figures in the order of their names.
    #[must_use]
    pub fn table(&self) -> Table {
        let figures: Vec<BTreeMap<String, f64>> = self.0.iter().map(Row::figures).collect();
        let mut names: Vec<&str> = figures
            .iter()
            .flat_map(BTreeMap::keys)
            .map(String::as_str)
            .collect();
        names.sort_unstable();
        names.dedup();
        let line = |(row, figures): (&Row, &BTreeMap<String, f64>)| {
            let cell = |name: &&str| figures.get(*name).map_or_else(String::new, f64::to_string);
            let head = [
                row.group.clone(),
                row.system.clone(),
                row.x.to_string(),
                row.seed.to_string(),
            ];
            head.into_iter()
                .chain(names.iter().map(cell))
                .collect::<Vec<String>>()
        };
        let columns = ["group", "system", "x", "seed"];
        Table::new(columns.into_iter().chain(names.iter().copied()))
            .with_rows(self.0.iter().zip(&figures).map(line))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::figure::tokens;
    use super::*;

    pub(in crate::experiment) fn row(
        group: &str,
        system: &str,
        x: f64,
        seed: u64,
        tokens: f64,
    ) -> Row {
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
