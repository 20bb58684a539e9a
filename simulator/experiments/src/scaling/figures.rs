//! Figures of a run of the closed loop.

use std::collections::BTreeMap;

use isotherm_report::number::{percent, short};
use isotherm_report::{Row, Section};
use isotherm_simulator::scaling::cluster::Cell;
use isotherm_simulator::scaling::latencies::Latencies;

use crate::figures::Figure;
use crate::rows::Rows;

pub(crate) const HOURS: Figure = Figure::less("instance hours", "instance_hours", short);
pub(crate) const WASTED: Figure = Figure::less("hours starting", "hours_starting", short);
pub(crate) const SPOT: Figure = Figure::more("hours lent as spot", "hours_spot", short);
pub(crate) const STARTS: Figure = Figure::less("starts", "starts", short);
pub(crate) const REVERSALS: Figure = Figure::less("starts undone in 10 min", "reversals", short);
pub(crate) const P75: Figure = Figure::less("p75 TTFT, s", "ttft_p75_s", short);
pub(crate) const P95: Figure = Figure::less("p95 TTFT, s", "ttft_p95_s", short);
pub(crate) const E2E_P95: Figure = Figure::less("p95 end to end, s", "e2e_p95_s", short);
pub(crate) const LATE: Figure = Figure::less("TTFT over 5 s", "late_share", percent);
pub(crate) const USED: Figure = Figure::more("memory utilisation", "utilisation", percent);
pub(crate) const BATCH: Figure = Figure::more("batch served", "batch_served_share", percent);
pub(crate) const MISSED: Figure = Figure::less("batch past deadline", "batch_missed", short);
pub(crate) const FULL: Figure = Figure::less("time above 70 %", "full_share", percent);

const SHOWN: [Figure; 13] = [
    HOURS, WASTED, SPOT, STARTS, REVERSALS, P75, P95, E2E_P95, LATE, USED, FULL, BATCH, MISSED,
];
/// Time to the first token from which a request is late, s: the default objective of a pool.
const LATE_S: f64 = 5.0;

/// Figures over these cells.
pub(crate) fn of<'a>(cells: impl Iterator<Item = &'a Cell>) -> BTreeMap<&'static str, f64> {
    let cells: Vec<&Cell> = cells.collect();
    let sum = |of: &dyn Fn(&Cell) -> f64| cells.iter().map(|cell| of(cell)).sum::<f64>();
    let (mut ttft, mut e2e) = (Latencies::default(), Latencies::default());
    for cell in &cells {
        ttft.merge(&cell.ttft);
        e2e.merge(&cell.e2e);
    }
    let samples = cells.iter().flat_map(|cell| &cell.utilisations);
    let full = samples.clone().filter(|used| **used > 0.7).count() as f64;
    let arrived = sum(&|cell| cell.batch.arrived);
    let share = |part: f64, all: f64| if all > 0.0 { part / all } else { f64::NAN };
    #[rustfmt::skip]
    let figures = BTreeMap::from([
        ("instance_hours", sum(&|cell| cell.ledger.hours())),
        ("hours_starting", sum(&|cell| cell.ledger.wasted_hours())),
        ("hours_starting_own", sum(&|cell| cell.ledger.starting_own_s / 3_600.0)),
        ("hours_starting_other", sum(&|cell| cell.ledger.starting_other_s / 3_600.0)),
        ("hours_spot", sum(&|cell| cell.ledger.spot_s / 3_600.0)),
        ("starts", sum(&|cell| cell.ledger.starts as f64)),
        ("stops", sum(&|cell| cell.ledger.stops as f64)),
        ("reversals", sum(&|cell| cell.ledger.reversals as f64)),
        ("ttft_p50_s", ttft.quantile(0.5)),
        ("ttft_p75_s", ttft.quantile(0.75)),
        ("ttft_p95_s", ttft.quantile(0.95)),
        ("e2e_p75_s", e2e.quantile(0.75)),
        ("e2e_p95_s", e2e.quantile(0.95)),
        ("late_share", ttft.share_above(LATE_S)),
        ("requests", ttft.count()),
        ("utilisation", sum(&|cell| cell.utilisation) / cells.len().max(1) as f64),
        ("full_share", share(full, samples.count() as f64)),
        ("batch_arrived", arrived),
        ("batch_served_share", share(sum(&|cell| cell.batch.served), arrived)),
        ("batch_missed", sum(&|cell| cell.batch.missed)),
        ("batch_held_mean_s", share(sum(&|cell| cell.batch.held_mean_s), cells.len() as f64)),
    ]);
    figures
}

/// The figures of every cell of the rows; the headline has some systems.
pub(crate) fn section(rows: &Rows, systems: &[&str]) -> Section {
    let columns = ["group", "system", HOURS.name, P95.name, LATE.name];
    let is_shown = |row: &Row| systems.contains(&row.text(1));
    let table = rows.table("", &SHOWN).headline(&columns, is_shown);
    Section::detail("Figures of the runs").table(table)
}
