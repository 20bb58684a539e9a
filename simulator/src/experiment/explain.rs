//! Why one system did better than another, as far as the data say.

use isotherm_report::number::{percent, short, times};

use super::document::Table;
use super::figure::{attainment, cv, hits, p50, p90, tokens};
use super::rows::{Row, Rows};

/// Replicas that compute less of the time than this are not what limits the clients.
const BUSY_SHARE: f64 = 0.9;

/// A figure of the load ([`super::load::figures`]); `NaN` when there is none of that name.
pub(super) fn load(name: &'static str) -> impl Fn(&Row) -> f64 + Copy {
    move |row| row.more.get(name).copied().unwrap_or(f64::NAN)
}

/// One system beside another in one cell.
#[must_use]
pub(super) fn beside(rows: &Rows, group: &str, x: f64, (ours, theirs): (&str, &str)) -> String {
    let ratio = |figure: fn(&Row) -> f64| times(rows.ratio(group, (ours, theirs), x, figure));
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

/// A head, a figure, and how it is written.
type Column<'a> = (&'static str, &'a dyn Fn(&Row) -> f64, fn(f64) -> String);

/// The figures that explain, for every system of a cell.
#[must_use]
pub(super) fn table(rows: &Rows, cells: &[(&str, &str, f64)]) -> Table {
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
        ("stranded", &load("stranded_share"), percent),
        ("waiting in routers", &load("router_waiting_mean"), short),
        ("busy", &load("busy_share"), percent),
    ];
    let line = |(group, system, x): &(&str, &str, f64)| {
        let mut line = vec![format!("{group}: {system}")];
        for (_, figure, format) in &columns {
            line.push(format(rows.mean(group, system, *x, figure)));
        }
        line
    };
    let heads = columns.iter().map(|(name, _, _)| (*name).to_owned());
    Table {
        heads: core::iter::once(String::new()).chain(heads).collect(),
        lines: cells.iter().map(line).collect(),
    }
}
