//! The program by `good_lp` with `microlp`, a branch-and-bound solver in Rust.
//!
//! `microlp` reads a clock for its time limit. A program that it solves in time has the same answer in every run; one that it does
//! not solve in time ends with the best answer so far, or with none. Either is checked like every answer.

use std::collections::BTreeMap;

use good_lp::solvers::WithTimeLimit as _;
use good_lp::{
    Expression, ProblemVariables, Solution as _, SolverModel as _, Variable, constraint, microlp,
    variable,
};

use super::{CELLS_MAX, Cell, Program, replicas_for};

/// Time of a solution, in seconds.
const TIME_S_MAX: f64 = 2.0;
/// Largest number of replicas, which the solver's integers hold.
const REPLICAS_MAX: u32 = 1_000_000;

/// Replicas of each cell; `None` without a valid answer in time.
pub(super) fn solve(program: &Program) -> Option<Vec<u32>> {
    if program.cells.len() > CELLS_MAX {
        return None;
    }
    let mut variables = ProblemVariables::new();
    let mut objective = Expression::from(0.0);
    let mut starts = Vec::new();
    let mut counts = Vec::with_capacity(program.cells.len());
    for cell in &program.cells {
        let bounds = variable()
            .integer()
            .min(cell.min)
            .max(cell.max.min(REPLICAS_MAX));
        let count = variables.add(bounds);
        objective.add_mul(cell.price, count);
        if cell.startup_price > 0.0 {
            let started = variables.add(variable().min(0));
            objective.add_mul(cell.startup_price, started);
            starts.push(constraint!(started >= count - f64::from(cell.replicas)));
        }
        counts.push(count);
    }
    let mut model = variables
        .minimise(objective)
        .using(microlp)
        .with_time_limit(TIME_S_MAX);
    for start in starts {
        model = model.with(start);
    }
    for (carried, demand) in demands(program, &counts) {
        model = model.with(constraint!(carried >= demand));
    }
    for (taken, most) in caps(program, &counts) {
        model = model.with(constraint!(taken <= most));
    }
    let solution = model.solve().ok()?;
    let replicas: Option<Vec<u32>> = counts
        .iter()
        .map(|count| rounded(solution.value(*count)))
        .collect();
    replicas.filter(|replicas| program.is_feasible(replicas))
}

fn rounded(value: f64) -> Option<u32> {
    let nearest = value.round();
    let is_integer =
        (value - nearest).abs() < 1e-4 && (0.0..=f64::from(REPLICAS_MAX)).contains(&nearest);
    is_integer.then_some(nearest as u32)
}

/// Capacity and demand, of each model in each region and of each model in all regions.
fn demands(program: &Program, counts: &[Variable]) -> Vec<(Expression, f64)> {
    let mut rows = Vec::new();
    let mut totals: BTreeMap<usize, f64> = BTreeMap::new();
    for ((model, region), demand) in &program.demand {
        let local = demand * program.local_share(*model);
        let cells = |cell: &Cell| (cell.model, cell.region) == (*model, *region);
        rows.push(row(program, counts, local, cells));
        *totals.entry(*model).or_default() += demand;
    }
    for (model, demand) in totals {
        rows.push(row(program, counts, demand, |cell| cell.model == model));
    }
    rows
}

/// Capacity of some cells and the demand that they carry, in units of the largest throughput: the solver's tolerances are absolute.
/// With one throughput the demand is rounded up to whole replicas. The relaxation without integers then has integer solutions,
/// and the search has nothing to branch on.
fn row(
    program: &Program,
    counts: &[Variable],
    demand: f64,
    has_part: impl Fn(&Cell) -> bool,
) -> (Expression, f64) {
    let parts = program
        .cells
        .iter()
        .zip(counts)
        .filter(|(cell, _)| has_part(cell));
    let parts: Vec<(&Cell, &Variable)> = parts.collect();
    let largest = parts
        .iter()
        .map(|(cell, _)| cell.capacity)
        .fold(0.0, f64::max);
    let smallest = parts
        .iter()
        .map(|(cell, _)| cell.capacity)
        .fold(f64::MAX, f64::min);
    let unit = if largest > 0.0 { largest } else { 1.0 };
    let mut carried = Expression::from(0.0);
    for (cell, count) in parts {
        carried.add_mul(cell.capacity / unit, *count);
    }
    if smallest >= largest {
        (carried, f64::from(replicas_for(demand, unit)))
    } else {
        (carried, demand / unit)
    }
}

fn caps(program: &Program, counts: &[Variable]) -> Vec<(Expression, f64)> {
    let rows = program.gpus_max.iter().map(|(key, most)| {
        let mut taken = Expression::from(0.0);
        for (cell, count) in program.cells.iter().zip(counts) {
            if (cell.region, cell.kind) == *key {
                taken.add_mul(f64::from(cell.gpus), *count);
            }
        }
        (taken, f64::from(*most))
    });
    rows.collect()
}
