//! Differences between two systems, as far as the data explain them.

use isotherm_report::Table;
use isotherm_report::number::{percent, short, times};

use crate::figures::{Figure, attainment, cv, hits, load, p50, p90, tokens};
use crate::rows::{Row, Rows};

/// Replicas that compute less of the time than this are not what limits the clients.
const BUSY_SHARE: f64 = 0.9;

/// Figures of two systems in a cell, side by side.
#[must_use]
pub(crate) fn beside(rows: &Rows, group: &str, x: f64, (ours, theirs): (&str, &str)) -> String {
    let ratio = |figure: Figure| times(rows.ratio(group, (ours, theirs), x, figure));
    let both = |figure: &dyn Fn(&Row) -> f64, format: fn(f64) -> String| {
        format!(
            "{} against {}",
            format(rows.mean(group, ours, x, figure)),
            format(rows.mean(group, theirs, x, figure))
        )
    };
    let mut text = format!(
        "{group}, {ours} against {theirs}: throughput {}, p90 TTFT {}. Cache hits {}; requests waited in an engine while another \
         had none waiting for {} of the time; {} requests waited in an engine and {} in routers on average; replicas computed {} \
         of the time; {} preemptions.",
        ratio(tokens),
        ratio(p90),
        both(&hits, percent),
        both(&load("stranded_share"), percent),
        both(&load("engine_waiting_mean"), short),
        both(&load("router_waiting_mean"), short),
        both(&load("busy_share"), percent),
        both(&load("preemptions"), short),
    );
    let busy = |system| rows.mean(group, system, x, load("busy_share"));
    if busy(ours) < BUSY_SHARE && busy(theirs) < BUSY_SHARE {
        text.push_str(
            " Neither fleet is busy all the time: these clients, who wait for each answer, set the pace, and throughput can \
             differ only as their waits do.",
        );
    }
    text
}

/// Name, figure and format of a column.
type Column<'a> = (&'static str, &'a dyn Fn(&Row) -> f64, fn(f64) -> String);

/// The figures that explain, for every system of every group, in the order of the rows.
#[must_use]
pub(crate) fn table(rows: &Rows, label: impl Fn(&Row) -> String) -> Table {
    let columns: [Column<'_>; 13] = [
        ("requests", &|row| row.summary.requests as f64, short),
        ("failed", &|row| row.summary.failed as f64, short),
        ("tokens/s", &tokens, short),
        ("cache hits", &hits, percent),
        ("TTFT p50 s", &p50, short),
        ("p90 s", &p90, short),
        ("e2e p50 s", &|row| row.summary.e2e_p50_s, short),
        ("within SLO", &attainment, percent),
        ("load CV", &cv, short),
        (
            "most / mean outstanding",
            &load("outstanding_most_over_mean"),
            short,
        ),
        (
            "waits beside an idle engine",
            &load("stranded_share"),
            percent,
        ),
        ("waiting in routers", &load("router_waiting_mean"), short),
        ("busy", &load("busy_share"), percent),
    ];
    let names = columns.iter().map(|(name, _, _)| *name);
    let mut table = Table::new(core::iter::once("").chain(names));
    for row in rows.cells() {
        let mean = |figure| rows.mean(&row.group, &row.system, row.x, figure);
        let figures = columns
            .iter()
            .map(|(_, figure, format)| format(mean(figure)));
        table.push(core::iter::once(label(row)).chain(figures));
    }
    table
}

/// Label of a cell: the group and the system.
pub(crate) fn group_and_system(row: &Row) -> String {
    format!("{}: {}", row.group, row.system)
}
