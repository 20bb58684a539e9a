//! Conclusions: the share of the cells that hold, each cell that falls short, and what the default policy loses with less telemetry.

use isotherm_report::Conclusion;
use isotherm_report::number::{percent, short, times};
use isotherm_simulator::Telemetry;

use super::OURS;
use super::cells::{Cell, GOODPUT_MIN, P90_MAX, holds_goodput, holds_p90};
use super::plan::{Plan, group};
use super::reasons::reasons;
use crate::figures::{GOODPUTS, HITS, P90};
use crate::rows::Rows;

/// The share of the cells that has to hold.
const CELLS_MIN: f64 = 0.95;
/// The most that the p90 with stock vLLM may be, of the p90 with full telemetry.
const STOCK_MAX: f64 = 1.15;
/// The least cache hits of a large pool, of those of a pool of eight replicas.
const POOL_HITS_MIN: f64 = 0.95;
/// Pool with which others are compared.
const SMALL_POOL: &str = "pool-8";

pub(super) fn conclusions(plan: &Plan, rows: &Rows, cells: &[Cell]) -> Vec<Conclusion> {
    let mut conclusions = vec![overall(cells)];
    conclusions.extend(stock(plan, rows));
    conclusions.extend(pools(plan, rows));
    conclusions.extend(by_figure(cells));
    let short = cells.iter().filter(|cell| !cell.holds());
    conclusions.extend(short.map(|cell| shortfall(rows, cell, cells)));
    conclusions
}

fn share(held: usize, all: usize) -> f64 {
    held as f64 / all.max(1) as f64
}

fn overall(cells: &[Cell]) -> Conclusion {
    let held = cells.iter().filter(|cell| cell.holds()).count();
    let share = share(held, cells.len());
    Conclusion::claim(
        format!(
            "In at least {} of the cells goodput at 1, 2, 5 and 10 s is at least {GOODPUT_MIN} of the best other system's, and the \
             p90 TTFT at most {P90_MAX} of the best other's",
            percent(CELLS_MIN)
        ),
        share >= CELLS_MIN,
    )
    .measured(format!("{held} of {} cells, {}", cells.len(), percent(share)))
}

/// The share of cells in which each figure alone holds.
fn by_figure(cells: &[Cell]) -> Vec<Conclusion> {
    let count = |is_held: &dyn Fn(&Cell) -> bool| cells.iter().filter(|cell| is_held(cell)).count();
    let goodputs = (0..).zip(GOODPUTS).map(|(at, figure)| {
        let is_held = |cell: &Cell| {
            let ratio = cell.goodputs.get::<usize>(at).map(|one| one.ratio);
            ratio.is_some_and(holds_goodput)
        };
        (figure.name, count(&is_held))
    });
    let p90 = |cell: &Cell| cell.p90().is_some_and(|p90| holds_p90(p90.ratio));
    let figures = goodputs.chain([(P90.name, count(&p90))]);
    let shown: Vec<String> = figures
        .map(|(name, held)| format!("{name} {}", percent(share(held, cells.len()))))
        .collect();
    vec![Conclusion::note(format!(
        "Cells in which a figure alone holds: {}.",
        shown.join(", ")
    ))]
}

/// The p90 with stock vLLM over the p90 with full telemetry.
fn stock(plan: &Plan, rows: &Rows) -> Option<Conclusion> {
    let has = |profile| plan.telemetry.contains(&profile);
    if !has(Telemetry::Full) || !has(Telemetry::VllmStock) {
        return None;
    }
    let ratio = |workload: &str| {
        let p90 = |profile| rows.at(&group(workload, profile), 0.0).mean(OURS, P90);
        let (stock, full) = (p90(Telemetry::VllmStock), p90(Telemetry::Full));
        if stock == full { 1.0 } else { stock / full }
    };
    let ratios: Vec<(&str, f64)> = plan
        .workloads
        .iter()
        .map(|workload| (workload.name, ratio(workload.name)))
        .collect();
    let beyond = ratios.iter().filter(|(_, ratio)| *ratio > STOCK_MAX);
    let beyond: Vec<String> = beyond
        .map(|(workload, ratio)| format!("{workload} {}", times(*ratio)))
        .collect();
    let most = ratios.iter().map(|(_, ratio)| *ratio).fold(0.0, f64::max);
    let text = format!(
        "With vllm-stock the p90 TTFT of isotherm is at most {STOCK_MAX} of its own with full telemetry on every workload"
    );
    let measured = if beyond.is_empty() {
        format!("at most {}", times(most))
    } else {
        format!("not: {}", beyond.join(", "))
    };
    Some(Conclusion::claim(text, beyond.is_empty()).measured(measured))
}

/// Cache hits of large pools over those of a small one, with the first telemetry profile.
fn pools(plan: &Plan, rows: &Rows) -> Option<Conclusion> {
    let profile = *plan.telemetry.first()?;
    let hits = |workload: &str| rows.at(&group(workload, profile), 0.0).mean(OURS, HITS);
    let names = plan.workloads.iter().map(|workload| workload.name);
    let pools: Vec<&str> = names.filter(|name| name.starts_with("pool-")).collect();
    let large = pools.iter().filter(|name| **name != SMALL_POOL);
    let ratios: Vec<(&str, f64)> = large
        .map(|name| (*name, hits(name) / hits(SMALL_POOL)))
        .filter(|(_, ratio)| ratio.is_finite())
        .collect();
    if ratios.is_empty() {
        return None;
    }
    let shown = ratios
        .iter()
        .map(|(name, ratio)| format!("{name} {}", times(*ratio)));
    let holds = ratios.iter().all(|(_, ratio)| *ratio >= POOL_HITS_MIN);
    let text = format!(
        "A larger pool at the same load per replica finds at least {POOL_HITS_MIN} of what a pool of eight finds in its caches"
    );
    Some(Conclusion::claim(text, holds).measured(shown.collect::<Vec<_>>().join(", ")))
}

fn shortfall(rows: &Rows, cell: &Cell, cells: &[Cell]) -> Conclusion {
    let full = cells
        .iter()
        .find(|other| other.workload == cell.workload && other.telemetry == Telemetry::Full);
    let short_of = cell
        .shortfalls()
        .map(|one| format!("{} {} of {}", one.figure, short(one.ratio), one.best_other));
    Conclusion::note(format!(
        "{} with {}: {}. Reason: {}.",
        cell.workload,
        cell.telemetry.as_str(),
        short_of.collect::<Vec<_>>().join(", "),
        reasons(rows, cell, full)
    ))
}
