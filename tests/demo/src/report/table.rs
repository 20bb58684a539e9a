//! The table of a comparison: a row for each run, groups of columns, and the best value of each column marked.

use isotherm_report::number::{hundredths, percent, whole};
use isotherm_report::{Cell, Table};

use super::{Comparison, Run};

/// A figure of a run; `None` where no response tells it.
type Figure = fn(&Run) -> Option<f64>;

/// A column with a figure of each run.
struct Column {
    group: &'static str,
    name: &'static str,
    figure: Figure,
    format: fn(f64) -> String,
    best: Best,
}

/// The best value of a column.
#[derive(Clone, Copy, PartialEq)]
enum Best {
    Least,
    Greatest,
    None,
}

const TTFT: &str = "TTFT ms";
const END_TO_END: &str = "end to end ms";
const QUEUE: &str = "queue ms";

const COLUMNS: [Column; 12] = [
    column(
        "",
        "cache hits",
        |run| Some(run.metrics.cache_hit_ratio),
        percent,
        Best::Greatest,
    ),
    column(
        TTFT,
        "mean",
        |run| Some(run.metrics.ttft_ms.mean),
        whole,
        Best::Least,
    ),
    column(
        TTFT,
        "p50",
        |run| Some(run.metrics.ttft_ms.p50),
        whole,
        Best::Least,
    ),
    column(
        TTFT,
        "p90",
        |run| Some(run.metrics.ttft_ms.p90),
        whole,
        Best::Least,
    ),
    column(
        TTFT,
        "p99",
        |run| Some(run.metrics.ttft_ms.p99),
        whole,
        Best::Least,
    ),
    column(
        END_TO_END,
        "p50",
        |run| Some(run.metrics.e2e_ms.p50),
        whole,
        Best::Least,
    ),
    column(
        END_TO_END,
        "p99",
        |run| Some(run.metrics.e2e_ms.p99),
        whole,
        Best::Least,
    ),
    column(
        QUEUE,
        "p50",
        |run| Some(run.metrics.queue_ms.as_ref()?.p50),
        whole,
        Best::None,
    ),
    column(
        QUEUE,
        "p99",
        |run| Some(run.metrics.queue_ms.as_ref()?.p99),
        whole,
        Best::None,
    ),
    column(
        "",
        "tokens/s",
        |run| Some(run.metrics.output_tokens_per_s),
        whole,
        Best::Greatest,
    ),
    column(
        "",
        "busiest / mean",
        |run| Some(run.load_imbalance),
        hundredths,
        Best::Least,
    ),
    column(
        "",
        "run, s measured",
        |run| Some(run.duration_s),
        |seconds| format!("{seconds:.1}"),
        Best::None,
    ),
];

const fn column(
    group: &'static str,
    name: &'static str,
    figure: Figure,
    format: fn(f64) -> String,
    best: Best,
) -> Column {
    Column {
        group,
        name,
        figure,
        format,
        best,
    }
}

/// Columns with the name of the run and the numbers of its requests.
const FIRST_COLUMNS: [&str; 4] = ["policy", "push", "requests", "failed"];

impl Comparison {
    pub(crate) fn table(&self) -> Table {
        let columns: Vec<_> = COLUMNS
            .iter()
            .filter(|column| column.group != QUEUE || self.has_waits())
            .collect();
        let names = columns.iter().map(|column| column.name);
        let mut table = Table::new(FIRST_COLUMNS.into_iter().chain(names));
        for group in [TTFT, END_TO_END, QUEUE] {
            let is_grouped = |column: &&Column| column.group == group;
            if let Some(first) = columns.iter().position(is_grouped) {
                let count = columns.iter().filter(|column| is_grouped(column)).count();
                let first = FIRST_COLUMNS.len() + first;
                table = table.with_group(group, first..first + count);
            }
        }
        for run in &self.runs {
            let failed = Cell::zero_expected(run.metrics.failed);
            let requests = run.metrics.completed + run.metrics.failed;
            let first = [
                run.label().into(),
                run.push.as_str().into(),
                requests.into(),
                failed,
            ];
            let figures = columns.iter().map(|column| self.cell(run, column));
            table.push(first.into_iter().chain(figures));
        }
        let shown = [
            "policy",
            "push",
            "cache hits",
            "TTFT ms p50",
            "TTFT ms p90",
            "tokens/s",
        ];
        table.headline(&shown, |_| true)
    }

    /// Whether a request of a run waited for a time that the table shows.
    fn has_waits(&self) -> bool {
        let waits = self
            .runs
            .iter()
            .filter_map(|run| run.metrics.queue_ms.as_ref());
        waits.map(|queue| queue.p99).any(|p99| whole(p99) != "0")
    }

    fn cell(&self, run: &Run, column: &Column) -> Cell {
        let Some(value) = (column.figure)(run) else {
            return "".into();
        };
        let text = (column.format)(value);
        let shown = self.runs.iter().filter_map(column.figure);
        let best = match column.best {
            Best::Least => shown.clone().reduce(f64::min),
            Best::Greatest => shown.clone().reduce(f64::max),
            Best::None => None,
        };
        let best = best.map(column.format);
        let mut shown = shown.map(column.format);
        let differs = shown.any(|other| other != text);
        Cell {
            is_best: differs && best.as_ref() == Some(&text),
            ..text.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Summary;
    use crate::report::tests::example;

    #[test]
    fn the_best_value_of_a_column_is_marked_and_equal_ones_are_not() {
        let table = example().table();
        let best = |name: &str, row: usize| {
            let index = table.columns.iter().position(|column| column == name);
            table.rows[row].cells[index.unwrap()].is_best
        };
        assert!(best("cache hits", 0) && !best("cache hits", 1));
        assert!(best("p90", 0) && !best("p90", 1));
        assert!(!best("tokens/s", 0) && !best("tokens/s", 1));
    }

    #[test]
    fn the_queue_has_columns_only_where_requests_waited() {
        let mut comparison = example();
        let has_queue = |comparison: &Comparison| comparison.table().markdown().contains("queue");
        comparison.runs[0].metrics.queue_ms = Some(Summary::default());
        assert!(!has_queue(&comparison));
        comparison.runs[0].metrics.queue_ms = Some(Summary {
            p99: 12.0,
            ..Summary::default()
        });
        let table = comparison.table();
        assert!(has_queue(&comparison));
        assert_eq!(table.rows[1].cells[12].text, "", "no answer tells the wait");
        assert_eq!(table.groups.len(), 3);
    }
}
