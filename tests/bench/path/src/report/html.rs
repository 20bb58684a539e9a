//! The charts and the tables as one page that needs nothing else: no script, no font, no network.

use isotherm_report::chart::{Bar, BarGroup, Bars, Chart, Curve, CurveStyle, Lines};
use isotherm_report::number::{hundredths, whole};
use isotherm_report::page::{figure, key, page};
use maud::{Markup, html};

use super::{MedianRange, Report, place_of};
use crate::variant::Variant;
use crate::workload::{PromptKind, Workload};

const SIZE: (u32, u32) = (1_060, 320);
const STYLE: &str = "figure { margin-bottom: 1rem; } pre { overflow-x: auto; font-size: .85rem; }";

/// The page.
pub(super) fn render(report: &Report) -> anyhow::Result<String> {
    type Group = (&'static str, fn(&Workload) -> bool);
    let groups: [Group; 3] = [
        ("unique prompts", Workload::is_plain),
        ("conversations", |workload| {
            workload.prompts == PromptKind::MultiTurn
        }),
        ("streamed answers", |workload| workload.chunks > 0),
    ];
    let mut figures = Vec::new();
    for (name, chosen) in groups {
        let workloads: Vec<&Workload> = report.workloads.iter().filter(|of| chosen(of)).collect();
        let title = format!("CPU microseconds per request, {name}");
        let note = "All processes of a row together; medians, and the lines from least to most. Less is better.";
        figures.extend(chart(
            report,
            &workloads,
            [&title, note],
            0,
            |row, workload| report.cpu(row, workload),
        )?);
        let title = format!("Requests per second at saturation, {name}");
        let note = "Generator and replicas run on the same machine. More is better.";
        figures.extend(chart(
            report,
            &workloads,
            [&title, note],
            0,
            |row, workload| MedianRange::of(report.rates(row, workload)),
        )?);
    }
    let plain: Vec<&Workload> = report.workloads.iter().filter(|of| of.is_plain()).collect();
    for percent in [50.0, 90.0, 99.0] {
        let title = format!("Milliseconds added to plain Envoy, p{percent:.0}");
        let note = "At a third of the rate that Isotherm carries. Less is better.";
        figures.extend(chart(
            report,
            &plain,
            [&title, note],
            2,
            |row, workload| {
                let added = report.added(row, workload, place_of(percent))?;
                (row != Variant::Envoy).then_some(MedianRange {
                    median: added.median / 1e3,
                    min: added.min / 1e3,
                    max: added.max / 1e3,
                })
            },
        )?);
    }
    figures.extend(memory(report)?);
    let body = html! {
        h1 { "What a request costs on its way" }
        p {
            "Everything on loopback, one Envoy worker, replicas that answer at once; " (report.rounds)
            " rounds of " (report.seconds) " s in which the rows take turns, " (report.processors()) "; medians. Only ratios travel to other machines."
        }
        (key(report.rows.iter().map(|row| row.name())))
        @for figure in &figures { (figure) }
        pre { (report.table()) }
        footer { "Every sample is in path.json beside this page. `cargo xtask bench path` makes it." }
    };
    Ok(page(
        "Isotherm: what a request costs on its way",
        STYLE,
        &body,
    ))
}

/// One chart of bars, with a group for each workload; `None` when there is nothing to draw.
fn chart(
    report: &Report,
    workloads: &[&Workload],
    [title, note]: [&str; 2],
    digits: usize,
    value: impl Fn(Variant, &Workload) -> Option<MedianRange>,
) -> anyhow::Result<Option<Markup>> {
    let bar = |spread: Option<MedianRange>| Bar {
        value: spread.map_or(f64::NAN, |of| of.median),
        spread: spread.map(|of| (of.min, of.max)),
    };
    let groups: Vec<BarGroup> = workloads
        .iter()
        .map(|workload| BarGroup {
            name: workload.name.to_owned(),
            bars: report
                .rows
                .iter()
                .map(|row| bar(value(*row, workload)))
                .collect(),
        })
        .collect();
    let mut bars = groups.iter().flat_map(|group| &group.bars);
    if !bars.any(|bar| bar.value.is_finite()) {
        return Ok(None);
    }
    let chart = Bars {
        groups,
        reference: None,
        format: if digits == 0 { whole } else { hundredths },
    };
    let svg = Chart::new("", "", chart).with_size(SIZE).svg()?;
    Ok(Some(figure(title, note, &svg)))
}

fn memory(report: &Report) -> anyhow::Result<Option<Markup>> {
    let line = |(series, row): (usize, &Variant)| {
        let looks = report.memory.iter().filter(|memory| memory.row == *row);
        let points = looks.map(|memory| {
            let bytes: u64 = memory.resident_bytes.values().sum();
            (memory.prompts as f64 / 1e3, bytes as f64 / 1e6)
        });
        Curve {
            series,
            style: CurveStyle::Plain,
            points: points.collect(),
        }
    };
    let lines: Vec<Curve> = report.rows.iter().enumerate().map(line).collect();
    if lines.iter().all(|line| line.points.is_empty()) {
        return Ok(None);
    }
    let chart = Lines {
        lines,
        x_name: "thousand unique prompts of 4 KB".into(),
        y_name: "resident MB".into(),
        ..Lines::default()
    };
    let svg = Chart::new("", "", chart).with_size(SIZE).svg()?;
    let note = "All processes of a row together. Flat is better.";
    Ok(Some(figure("Memory", note, &svg)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;

    #[test]
    fn the_page_has_a_chart_for_what_was_measured_and_needs_no_network() {
        let page = super::render(&example()).unwrap();
        // Costs, rates, three percentiles, memory.
        assert_eq!(page.matches("<svg").count(), 6);
        assert_eq!(
            page.matches("http://").count(),
            page.matches("http://www.w3.org").count()
        );
        assert!(page.contains("| goal | wanted |"));
    }
}
