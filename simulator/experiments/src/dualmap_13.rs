//! DualMap, Figure 13a: goodput from 8 to 32 replicas.
//!
//! Goodput is the highest rate with 90 % of the requests within the SLO, found by halving an interval. Requests grow with
//! the fleet, as in the paper (8,000 for 8 replicas there; fewer here, so that the search stays short). The highest rate is
//! tried first: where even that holds, goodput is said to be at least that.

use isotherm_report::number::{short, times};

use crate::charts::{Axes, Charts};
use crate::context::{Case, Context};
use crate::document::Document;
use crate::dualmap::{
    BASELINES, DUAL_MAP, GOODPUT_SHARE, PUSHING, SYSTEMS, TOOLS, arrangement, setup,
};
use crate::figures::load;
use crate::paper::{PaperComparison, PaperFigure};
use crate::rows::{Row, Rows};
use crate::workloads;
use isotherm_report::{Conclusion, Section, Table};

const SEEDS: u64 = 2;
const SIZES: [usize; 4] = [8, 16, 24, 32];
/// Requests for each replica.
const REQUESTS_EACH: usize = 150;
/// Requests per second for each replica between which goodput is sought, and how often the interval is halved.
const RATE_EACH: (f64, f64) = (0.2, 2.2);
const HALVINGS: u32 = 5;
const SOURCE: &str = "DualMap, section A.3.1, text on Figure 13a (\"near-linear\")";

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let mut jobs: Vec<(&str, usize, u64)> = Vec::new();
    for size in context.points(&SIZES) {
        for system in SYSTEMS {
            jobs.extend(
                context
                    .seeds(SEEDS)
                    .into_iter()
                    .map(|seed| (system, size, seed)),
            );
        }
    }
    let rows = Rows(context.map(&jobs, |(system, size, seed)| {
        search(context, system, *size, *seed)
    }));
    let growth =
        rows.mean(TOOLS, DUAL_MAP, 32.0, goodput) / rows.mean(TOOLS, DUAL_MAP, 8.0, goodput);
    let sizes = rows.xs(TOOLS);
    let axes = Axes {
        x: "replicas",
        y: "requests/s within the SLO",
        ..Axes::default()
    };
    let charts = Charts {
        rows: &rows,
        systems: &SYSTEMS,
    };
    let caption = "More is better; a straight line is linear growth.";
    let chart = charts.lines(("Goodput", caption), TOOLS, axes, goodput);
    Document {
        title: "DualMap, Figure 13a: goodput from 8 to 32 replicas".into(),
        about: vec![format!(
            "Tools and agents on 8 to 32 replicas (Llama-3.1-8B on two A100 each), {REQUESTS_EACH} requests for each replica. Goodput: the highest rate with \
             {:.0} % of the requests within 5 s. {PUSHING}",
            GOODPUT_SHARE * 100.0
        )],
        paper: vec![PaperComparison::one(
            "goodput of DualMap with 32 replicas over 8",
            PaperFigure::times(4.0, SOURCE),
            growth,
        )],
        conclusions: conclusions(&rows, &sizes),
        sections: vec![
            Section::detail("Figure 13a")
                .charts(vec![chart])
                .table(table(&rows, &sizes)),
        ],
        rows,
        ..Document::default()
    }
}

fn goodput(row: &Row) -> f64 {
    load("goodput_requests_per_s")(row)
}

/// In a row whose goodput may be higher: the highest rate tried met the objective.
const AT_LEAST: &str = "goodput_at_least";

/// The goodput of a fleet, in words.
fn shown(rows: &Rows, system: &str, size: f64) -> String {
    let mut of = rows.of(TOOLS, system, size);
    let at_least = of.any(|row| row.more.contains_key(AT_LEAST));
    let mean = short(rows.mean(TOOLS, system, size, goodput));
    if at_least {
        format!("at least {mean}")
    } else {
        mean
    }
}

/// The row is that of the last rate that met the objective; its goodput is beside its figures.
fn search(context: &Context, system: &str, size: usize, seed: u64) -> Row {
    let replicas = size as f64;
    let at = |each: f64| {
        let source = workloads::tools(each * replicas, context.size(REQUESTS_EACH * size));
        let source = workloads::keyed_by_prefix(source);
        let case = Case::new(
            TOOLS,
            system,
            replicas,
            setup(size, arrangement(system)),
            &source,
        );
        case.row(seed, &case.run(seed))
    };
    let (mut low, mut high) = RATE_EACH;
    let meets = |row: &Row| row.summary.slo_attainment >= GOODPUT_SHARE;
    let mut most = at(high);
    if meets(&most) {
        most.more.insert("goodput_requests_per_s", high * replicas);
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
    best.more.insert("goodput_requests_per_s", low * replicas);
    best
}

fn table(rows: &Rows, sizes: &[f64]) -> Table {
    let names = sizes.iter().map(|size| format!("{size} replicas"));
    Table::new(core::iter::once(String::new()).chain(names)).with_rows(SYSTEMS.map(|system| {
        let cell = |&size: &f64| {
            let stat = rows.stat(TOOLS, system, size, goodput);
            let (least, most) = (short(stat.min), short(stat.max));
            format!("{} ({least} to {most})", shown(rows, system, size))
        };
        core::iter::once(system.to_owned())
            .chain(sizes.iter().map(cell))
            .collect::<Vec<_>>()
    }))
}

fn conclusions(rows: &Rows, sizes: &[f64]) -> Vec<Conclusion> {
    let mean = |system: &str, size| rows.mean(TOOLS, system, size, goodput);
    let mut conclusions: Vec<Conclusion> = sizes
        .iter()
        .map(|&size| {
            let best = Rows::best(BASELINES, |system| mean(system, size)).unwrap_or(DUAL_MAP);
            let ratio = mean(DUAL_MAP, size) / mean(best, size);
            Conclusion::claim(
                format!(
                    "{size} replicas: DualMap's goodput is {} that of {best}, the best of the paper's baselines ({} against {} requests/s).",
                    times(ratio),
                    shown(rows, DUAL_MAP, size),
                    shown(rows, best, size)
                ),
                mean(best, size) > 0.0 && ratio >= 1.0,
            )
        })
        .collect();
    for system in SYSTEMS {
        if let (Some(&first), Some(&last)) = (sizes.first(), sizes.last()) {
            let growth = mean(system, last) / mean(system, first);
            conclusions.push(Conclusion::note(format!(
                "{system}: {} the goodput with {} times the replicas.",
                times(growth),
                short(last / first)
            )));
        }
    }
    conclusions
}
