//! DualMap, Figure 13a: goodput from 8 to 32 replicas.
//!
//! Goodput is the highest rate with 90 % of the requests within the SLO, found by halving an interval. Requests grow with
//! the fleet, as in the paper (8,000 for 8 replicas there; fewer here, so that the search stays short). The highest rate is
//! tried first: where even that holds, goodput is said to be at least that.

use isotherm_report::chart::{Chart, Curve, CurveStyle, Lines};
use isotherm_report::number::{short, times};

use super::document::{Document, Section, Table};
use super::dualmap::{
    BASELINES, DUAL_MAP, GOODPUT_SHARE, PUSHING, SYSTEMS, TOOLS, balancing, setup,
};
use super::lab::{Case, Lab, outcome, row};
use super::paper::{Against, Stated};
use super::rows::{Row, Rows};
use super::workloads;
use isotherm_report::Conclusion;

const SEEDS: u64 = 2;
const SIZES: [usize; 4] = [8, 16, 24, 32];
/// Requests for each replica.
const REQUESTS_EACH: usize = 150;
/// Requests per second for each replica between which goodput is sought, and how often the interval is halved.
const RATE_EACH: (f64, f64) = (0.2, 2.2);
const HALVINGS: u32 = 5;
const SOURCE: &str = "DualMap, section A.3.1, text on Figure 13a (\"near-linear\")";

/// Runs it.
pub(super) fn run(lab: &Lab) -> anyhow::Result<Document> {
    let mut jobs: Vec<(&str, usize, u64)> = Vec::new();
    for size in lab.points(&SIZES) {
        for system in SYSTEMS {
            jobs.extend(
                lab.seeds(SEEDS)
                    .into_iter()
                    .map(|seed| (system, size, seed)),
            );
        }
    }
    let rows = Rows(lab.map(&jobs, |(system, size, seed)| {
        search(lab, system, *size, *seed)
    }));
    let growth =
        rows.mean(TOOLS, DUAL_MAP, 32.0, goodput) / rows.mean(TOOLS, DUAL_MAP, 8.0, goodput);
    let sizes = rows.xs(TOOLS);
    Ok(Document {
        name: "dualmap-13",
        title: "DualMap, Figure 13a: goodput from 8 to 32 replicas".into(),
        about: vec![format!(
            "Tools and agents on 8 to 32 replicas (Llama-3.1-8B on two A100 each), {REQUESTS_EACH} requests for each replica. Goodput: the highest rate with \
             {:.0} % of the requests within 5 s. {PUSHING}",
            GOODPUT_SHARE * 100.0
        )],
        paper: vec![Against::one(
            "goodput of DualMap with 32 replicas over 8",
            Stated::times(4.0, SOURCE),
            growth,
        )],
        findings: findings(&rows, &sizes),
        sections: vec![Section {
            title: "Figure 13a".into(),
            key: SYSTEMS.map(String::from).into(),
            charts: vec![chart(&rows, &sizes)?],
            table: Some(table(&rows, &sizes)),
            ..Section::default()
        }],
        rows,
    })
}

fn goodput(row: &Row) -> f64 {
    row.more
        .get("goodput_requests_per_s")
        .copied()
        .unwrap_or(f64::NAN)
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
fn search(lab: &Lab, system: &str, size: usize, seed: u64) -> Row {
    let replicas = size as f64;
    let at = |each: f64| {
        let draw = workloads::tools(each * replicas, lab.size(REQUESTS_EACH * size));
        let case = Case {
            group: TOOLS.to_owned(),
            system: system.to_owned(),
            x: replicas,
            setup: setup(size, balancing(system)),
            draw: workloads::keyed_by_prefix(draw),
        };
        row(&case, seed, &outcome(&case, seed))
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

fn chart(rows: &Rows, sizes: &[f64]) -> anyhow::Result<Chart> {
    let line = |(series, system): (usize, &&str)| Curve {
        series,
        style: CurveStyle::Dotted,
        points: sizes
            .iter()
            .map(|&size| (size, rows.mean(TOOLS, system, size, goodput)))
            .collect(),
    };
    let chart = Lines {
        lines: SYSTEMS.iter().enumerate().map(line).collect(),
        x_name: "replicas".into(),
        y_name: "requests/s within the SLO".into(),
        ..Lines::default()
    };
    let caption = "More is better; a straight line is linear growth.";
    Ok(Chart::new("Goodput", caption, chart))
}

fn table(rows: &Rows, sizes: &[f64]) -> Table {
    let heads =
        core::iter::once(String::new()).chain(sizes.iter().map(|size| format!("{size} replicas")));
    let line = |system: &&str| {
        let cells = sizes.iter().map(|&size| {
            let stat = rows.stat(TOOLS, system, size, goodput);
            format!(
                "{} ({} to {})",
                shown(rows, system, size),
                short(stat.min),
                short(stat.max)
            )
        });
        core::iter::once((*system).to_owned())
            .chain(cells)
            .collect()
    };
    Table {
        heads: heads.collect(),
        lines: SYSTEMS.iter().map(line).collect(),
    }
}

fn findings(rows: &Rows, sizes: &[f64]) -> Vec<Conclusion> {
    let mean = |system, size| rows.mean(TOOLS, system, size, goodput);
    let mut findings: Vec<Conclusion> = sizes
        .iter()
        .map(|&size| {
            let best = BASELINES
                .into_iter()
                .max_by(|a, b| mean(a, size).total_cmp(&mean(b, size)))
                .unwrap_or(DUAL_MAP);
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
            findings.push(Conclusion::note(format!(
                "{system}: {} the goodput with {} times the replicas.",
                times(growth),
                short(last / first)
            )));
        }
    }
    findings
}
