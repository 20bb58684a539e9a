//! DualMap, Figure 4: time to first token and end-to-end time over the request rate.

use isotherm_report::chart::{Chart, Scale};
use isotherm_report::number::{percent, short};

use super::document::{Document, Section};
use super::dualmap::{BASELINES, DUAL_MAP, GROUPS, PUSHING, SYSTEMS, high_rates, over_rate};
use super::explain;
use super::figure::{p50, p90};
use super::lab::Lab;
use super::paper::{Against, Stated, Unit};
use super::picture::{Axes, Figure, lines};
use super::rows::Rows;
use isotherm_report::Conclusion;

const SOURCE: &str = "DualMap, section 4.2, text on Figure 4";

/// Runs it.
pub(super) fn run(lab: &Lab) -> anyhow::Result<Document> {
    let rows = over_rate(lab);
    let mut paper = Vec::new();
    let mut findings = Vec::new();
    for group in GROUPS {
        let high = high_rates(&rows, group);
        paper.push(Against::over(
            format!("{group}, high rates: p50 TTFT less than the best baseline's by"),
            Stated::range(0.554, 0.974, Unit::Share, SOURCE),
            &savings(&rows, group, &high, p50),
        ));
        paper.push(Against::over(
            format!("{group}, high rates: p90 TTFT less than the best baseline's by"),
            Stated::range(0.823, 0.97, Unit::Share, SOURCE),
            &savings(&rows, group, &high, p90),
        ));
        findings.extend(high.iter().map(|&rate| sentence(&rows, group, rate)));
    }
    let sections = GROUPS
        .iter()
        .map(|group| {
            let high: Vec<(&str, &str, f64)> = rows
                .xs(group)
                .into_iter()
                .flat_map(|rate| SYSTEMS.map(|system| (*group, system, rate)))
                .collect();
            Ok(Section {
                title: (*group).to_owned(),
                key: SYSTEMS.map(String::from).into(),
                charts: vec![
                    chart(&rows, group, "p50 TTFT", p50)?,
                    chart(&rows, group, "p90 TTFT", p90)?,
                    chart(&rows, group, "p50 end to end", |row| row.summary.e2e_p50_s)?,
                    chart(&rows, group, "p90 end to end", |row| row.summary.e2e_p90_s)?,
                ],
                table: Some(labelled(&rows, &high)),
                ..Section::default()
            })
        })
        .collect::<anyhow::Result<_>>()?;
    Ok(Document {
        name: "dualmap-4",
        title: "DualMap, Figure 4: time to first token and end-to-end time over the request rate".into(),
        about: vec![
            "The runs of dualmap-3: 8 replicas (Llama-3.1-8B on two A100 each), both workloads. High rates are those at which \
             the best of the paper's baselines has less than 90 % within the SLO."
                .into(),
            PUSHING.into(),
        ],
        paper,
        findings,
        sections,
        rows,
    })
}

fn chart(rows: &Rows, group: &str, title: &str, figure: Figure) -> anyhow::Result<Chart> {
    let axes = Axes {
        x: "requests/s",
        y: "seconds",
        scale: Scale::Log,
        mark: None,
    };
    lines(
        (title, "Logarithmic. Less is better."),
        rows,
        (group, &SYSTEMS),
        &axes,
        figure,
    )
}

/// By how much DualMap's figure is below that of the best baseline, at each rate.
fn savings(rows: &Rows, group: &str, rates: &[f64], figure: Figure) -> Vec<f64> {
    rates
        .iter()
        .map(|&rate| {
            let best = BASELINES
                .iter()
                .map(|system| rows.mean(group, system, rate, figure))
                .fold(f64::INFINITY, f64::min);
            1.0 - rows.mean(group, DUAL_MAP, rate, figure) / best
        })
        .collect()
}

fn sentence(rows: &Rows, group: &str, rate: f64) -> Conclusion {
    let best = BASELINES
        .into_iter()
        .min_by(|a, b| {
            rows.mean(group, a, rate, p90)
                .total_cmp(&rows.mean(group, b, rate, p90))
        })
        .unwrap_or(DUAL_MAP);
    let hits = |system| percent(rows.mean(group, system, rate, |row| row.summary.hit_ratio));
    let cv = |system| short(rows.mean(group, system, rate, |row| row.summary.load_cv));
    Conclusion::note(format!(
        "{group} at {} requests/s: p90 TTFT {} s with DualMap, {} s with {best}, the best baseline there. Cache hits {} against {}, CV of the load {} against {}.",
        short(rate),
        short(rows.mean(group, DUAL_MAP, rate, p90)),
        short(rows.mean(group, best, rate, p90)),
        hits(DUAL_MAP),
        hits(best),
        cv(DUAL_MAP),
        cv(best)
    ))
}

fn labelled(rows: &Rows, cells: &[(&str, &str, f64)]) -> super::document::Table {
    let mut table = explain::table(rows, cells);
    for (line, (_, system, rate)) in table.lines.iter_mut().zip(cells) {
        if let Some(first) = line.first_mut() {
            *first = format!("{} /s: {system}", short(*rate));
        }
    }
    table
}
