//! DualMap, Figure 4: time to first token and end-to-end time over the request rate.

use isotherm_report::chart::Scale;
use isotherm_report::number::{percent, short};

use crate::charts::{Axes, Charts};
use crate::context::Context;
use crate::document::Document;
use crate::dualmap::{BASELINES, DUAL_MAP, GROUPS, PUSHING, SYSTEMS, high_rates, over_rate};
use crate::explain;
use crate::figures::{Figure, cv, hits, p50, p90};
use crate::paper::{PaperComparison, PaperFigure, Unit};
use crate::rows::{Row, Rows};
use isotherm_report::{Conclusion, Section};

const SOURCE: &str = "DualMap, section 4.2, text on Figure 4";

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let rows = over_rate(context);
    let mut paper = Vec::new();
    let mut conclusions = Vec::new();
    for group in GROUPS {
        let high = high_rates(&rows, group);
        paper.push(PaperComparison::over(
            format!("{group}, high rates: p50 TTFT less than the best baseline's by"),
            PaperFigure::range(0.554, 0.974, Unit::Share, SOURCE),
            &savings(&rows, group, &high, p50),
        ));
        paper.push(PaperComparison::over(
            format!("{group}, high rates: p90 TTFT less than the best baseline's by"),
            PaperFigure::range(0.823, 0.97, Unit::Share, SOURCE),
            &savings(&rows, group, &high, p90),
        ));
        conclusions.extend(high.iter().map(|&rate| sentence(&rows, group, rate)));
    }
    Document {
        title: "DualMap, Figure 4: time to first token and end-to-end time over the request rate".into(),
        about: vec![
            "The runs of dualmap-3: 8 replicas (Llama-3.1-8B on two A100 each), both workloads. High rates are those at which \
             the best of the paper's baselines has less than 90 % within the SLO."
                .into(),
            PUSHING.into(),
        ],
        paper,
        conclusions,
        sections: GROUPS.map(|group| section(&rows, group)).into(),
        rows,
        ..Document::default()
    }
}

fn section(rows: &Rows, group: &str) -> Section {
    let charts = Charts {
        rows,
        systems: &SYSTEMS,
    };
    let chart = |title, figure| {
        let axes = Axes {
            x: "requests/s",
            y: "seconds",
            scale: Scale::Log,
            reference: None,
        };
        charts.lines((title, "Logarithmic. Less is better."), group, axes, figure)
    };
    let label = |row: &Row| format!("{} /s: {}", short(row.x), row.system);
    Section::detail(group)
        .charts(vec![
            chart("p50 TTFT", p50 as Figure),
            chart("p90 TTFT", p90),
            chart("p50 end to end", |row| row.summary.e2e_p50_s),
            chart("p90 end to end", |row| row.summary.e2e_p90_s),
        ])
        .table(explain::table(
            &rows.filtered(|row| row.group == group),
            label,
        ))
}

/// Relative saving of DualMap against the best baseline, at each rate.
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
    let hits = |system| percent(rows.mean(group, system, rate, hits));
    let cv = |system| short(rows.mean(group, system, rate, cv));
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
