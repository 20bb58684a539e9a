//! The default policy, `isotherm`, on engines as people run them: every telemetry profile, on the standard workloads, on adverse
//! ones and on pools of several sizes, beside every rival with its best push rule.
//!
//! A cell is a workload with a telemetry profile. It holds when goodput at each of the fixed objectives is at least 0.98 of the best
//! other system's, and the p90 of the time to first token at most 1.05 of the best other's. Each figure has its own best other
//! system, by the mean over the seeds; a refused request counts as an infinite time. The policy keeps its own objective of 5 s.
//!
//! - `rivals`: the systems; `plan`: the runs
//! - `cells`: the judgement; `reasons`: what the runs tell of a cell that falls short
//! - `conclusions`: the report

mod cells;
mod conclusions;
mod plan;
mod reasons;
mod rivals;

use isotherm_report::number::{percent, times};
use isotherm_report::{Section, Table};

use self::cells::{Cell, FigureRatio, judge};
use self::plan::{Plan, group};
use crate::context::Context;
use crate::document::Document;
use crate::figures::{FAILED, GOODPUTS, HITS, P50, P90, P99};
use crate::rows::Rows;

const SEEDS: u64 = 3;
const OURS: &str = "isotherm";

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let plan = Plan::new(&context.effort);
    let rows = context.run(SEEDS, &plan.cases());
    let cells = judge(&plan, &rows);
    let about = format!(
        "{} workloads, {} telemetry profiles, {} seeds from {} on. Systems: {} in one region, and {} where there are three. \
         Workloads are {} of their full length. The rivals are every other policy with blind and selective pushing, SGLang's \
         gateway algorithm, llm-d's scorers (queue 2, KV cache 2, prefix 3), its default since August 2026 (sticky until saturated, then the \
         least uncached tokens), LMetric, SMetric, Dynamo's cost, and balancers that see all regions. Rivals \
         wait and are refused as isotherm is.",
        plan.workloads.len(),
        plan.telemetry.len(),
        context.seeds(SEEDS).len(),
        context.first_seed(),
        rivals::systems(1).len(),
        rivals::systems(3).len(),
        percent(plan.scale),
    );
    Document {
        about: vec![about],
        conclusions: conclusions::conclusions(&plan, &rows, &cells),
        sections: vec![
            Section::new("Cells").table(cells_table(&cells)),
            Section::detail("Telemetry profiles").table(profiles_table(&rows)),
        ],
        rows,
        ..Document::default()
    }
}

/// A line for each cell: the ratio of every figure to the best other system, and that system. The headline has the cells that fall
/// short.
fn cells_table(cells: &[Cell]) -> Table {
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
fn profiles_table(rows: &Rows) -> Table {
    let figures = [GOODPUTS.as_slice(), &[P50, P90, P99, HITS, FAILED]].concat();
    rows.filtered(|row| row.system == OURS).table("", &figures)
}
