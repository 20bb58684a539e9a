//! DualMap, Figure 13a: goodput from 8 to 32 replicas.
//!
//! Goodput is the highest rate with 90 % of the requests within the SLO, found by halving an interval. Requests grow with
//! the fleet, as in the paper (8,000 for 8 replicas there; fewer here, so that the search stays short). The search tries the
//! highest rate first: where even that holds, it is a lower bound.

use isotherm_report::number::{short, times};
use isotherm_report::{Conclusion, Section, Table};

use crate::context::{Case, Context};
use crate::document::Document;
use crate::dualmap::{
    BASELINES, DUAL_MAP, GOODPUT_SHARE, PUSHING, SYSTEMS, TOOLS, arrangement, setup,
};
use crate::figures::Figure;
use crate::paper::Source;
use crate::row::Row;
use crate::rows::{Panel, Rows};
use crate::workloads;

const SEEDS: u64 = 2;
const SIZES: [usize; 4] = [8, 16, 24, 32];
/// Requests for each replica.
const REQUESTS_EACH: usize = 150;
/// Requests per second for each replica between which goodput is sought, and how often the interval is halved.
const RATE_EACH: (f64, f64) = (0.2, 2.2);
const HALVINGS: u32 = 5;
const SOURCE: Source = Source("DualMap, section A.3.1, text on Figure 13a (\"near-linear\")");

const GOODPUT_KEY: &str = "goodput_requests_per_s";
const GOODPUT: Figure = Figure::more("goodput, requests/s", GOODPUT_KEY, short);
/// In a row whose goodput may be higher: the highest rate tried met the objective.
const AT_LEAST: &str = "goodput_at_least";

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let seeds = context.seeds(SEEDS);
    let mut jobs: Vec<(usize, &str, u64)> = Vec::new();
    for size in context.points(&SIZES) {
        for system in SYSTEMS {
            jobs.extend(seeds.iter().map(|seed| (size, system, *seed)));
        }
    }
    let rows = Rows(context.map(&jobs, |(size, system, seed)| {
        search(context, system, *size, *seed)
    }));
    let mean = |size| rows.at(TOOLS, size).mean(DUAL_MAP, GOODPUT);
    Document {
        about: vec![format!(
            "Tools and agents on 8 to 32 replicas (Llama-3.1-8B on two A100 each), {REQUESTS_EACH} requests for each replica. Goodput: the highest rate with \
             {:.0} % of the requests within 5 s. {PUSHING}",
            GOODPUT_SHARE * 100.0
        )],
        paper: vec![SOURCE.times(
            "goodput of DualMap with 32 replicas over 8",
            (4.0, 4.0),
            &[mean(32.0) / mean(8.0)],
        )],
        conclusions: conclusions(&rows),
        sections: vec![Section::detail("Figure 13a").table(table(&rows))],
        rows,
        ..Document::default()
    }
}

/// The goodput of a fleet as text.
fn shown(panel: Panel<'_>, system: &str) -> String {
    let is_bound = panel
        .runs(system)
        .any(|row| row.more.contains_key(AT_LEAST));
    let goodput = panel.shown(system, GOODPUT);
    format!("{}{goodput}", if is_bound { "at least " } else { "" })
}

/// The row is that of the last rate that met the objective; its goodput is beside its figures.
fn search(context: &Context, system: &str, size: usize, seed: u64) -> Row {
    let replicas = size as f64;
    let at = |each: f64| {
        let requests = context.size(REQUESTS_EACH * size);
        let source = workloads::keyed_by_prefix(workloads::tools(each * replicas, requests));
        let case = Case {
            group: TOOLS.to_owned(),
            system: system.to_owned(),
            x: replicas,
            setup: setup(size, arrangement(system)),
            source,
        };
        case.row(seed, &context.play(&case, seed))
    };
    let (mut low, mut high) = RATE_EACH;
    let meets = |row: &Row| {
        row.summary
            .as_ref()
            .is_some_and(|summary| summary.slo_attainment >= GOODPUT_SHARE)
    };
    let mut most = at(high);
    if meets(&most) {
        most.more.insert(GOODPUT_KEY, high * replicas);
        most.more.insert(AT_LEAST, 1.0);
        return most;
    }
    let mut best = at(low);
    if meets(&best) {
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            let tried = at(middle);
            if meets(&tried) {
                (low, best) = (middle, tried);
            } else {
                high = middle;
            }
        }
    } else {
        low = 0.0;
    }
    best.more.insert(GOODPUT_KEY, low * replicas);
    best
}

fn table(rows: &Rows) -> Table {
    let sizes = rows.xs(TOOLS);
    let names = sizes.iter().map(|size| format!("{size} replicas"));
    Table::new(core::iter::once(String::new()).chain(names)).with_rows(SYSTEMS.map(|system| {
        let cell = |&size: &f64| {
            let panel = rows.at(TOOLS, size);
            let stat = panel.stat(system, GOODPUT);
            let (least, most) = (short(stat.min), short(stat.max));
            format!("{} ({least} to {most})", shown(panel, system))
        };
        let cells = sizes.iter().map(cell);
        core::iter::once(system.to_owned())
            .chain(cells)
            .collect::<Vec<_>>()
    }))
}

fn conclusions(rows: &Rows) -> Vec<Conclusion> {
    let sizes = rows.xs(TOOLS);
    let over_baselines = |&size: &f64| {
        let panel = rows.at(TOOLS, size);
        let best = panel.best(BASELINES, GOODPUT).unwrap_or(DUAL_MAP);
        let ratio = panel.ratio(DUAL_MAP, best, GOODPUT);
        Conclusion::claim(
            format!(
                "{size} replicas: DualMap's goodput is {} that of {best}, the best of the paper's baselines ({} against {} requests/s).",
                times(ratio),
                shown(panel, DUAL_MAP),
                shown(panel, best)
            ),
            panel.mean(best, GOODPUT) > 0.0 && ratio >= 1.0,
        )
    };
    let mut conclusions: Vec<Conclusion> = sizes.iter().map(over_baselines).collect();
    if let (Some(&first), Some(&last)) = (sizes.first(), sizes.last()) {
        conclusions.extend(SYSTEMS.map(|system| {
            let mean = |size| rows.at(TOOLS, size).mean(system, GOODPUT);
            Conclusion::note(format!(
                "{system}: {} the goodput with {} times the replicas.",
                times(mean(last) / mean(first)),
                short(last / first)
            ))
        }));
    }
    conclusions
}
