//! Load and forwarding over the time of a run, as lines: for each region the requests of its clients that were under
//! way, and, filled, those of them that another region served.

use anyhow::anyhow;
use isotherm_report::palette::{GREY, TEXT, pick};
use plotters::prelude::*;

use super::super::timeline::{Curves, Timeline};

const SIZE: (u32, u32) = (520, 280);
const FILL: f64 = 0.35;

/// Draws one run; `highest` makes the charts of several runs comparable.
pub(super) fn lines(timeline: &Timeline, highest: f64) -> anyhow::Result<String> {
    let mut svg = String::new();
    draw(&mut svg, timeline, highest).map_err(|error| anyhow!("cannot draw a chart: {error}"))?;
    Ok(svg)
}

/// The highest point of all curves of a run.
pub(super) fn highest(timeline: &Timeline) -> f64 {
    timeline
        .regions
        .iter()
        .flat_map(|curves| curves.in_flight.iter().copied())
        .fold(1.0, f64::max)
}

fn draw(
    svg: &mut String,
    timeline: &Timeline,
    highest: f64,
) -> Result<(), Box<dyn std::error::Error>> {
    let end = timeline.at_s.last().copied().unwrap_or(1.0);
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(40)
        .build_cartesian_2d(0.0..end, 0.0..highest * 1.05)?;
    let font = |size: i32| ("sans-serif", size).into_font().color(&TEXT);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .bold_line_style(GREY.mix(0.2))
        .axis_style(GREY)
        .x_desc("seconds")
        .y_desc("requests under way")
        .label_style(font(12))
        .axis_desc_style(font(12))
        .draw()?;
    for (region, curves) in timeline.regions.iter().enumerate() {
        let points = |values: &[f64]| -> Vec<(f64, f64)> {
            timeline
                .at_s
                .iter()
                .copied()
                .zip(values.iter().copied())
                .collect()
        };
        let Curves {
            in_flight,
            elsewhere,
        } = curves;
        let mut filled = points(elsewhere);
        filled.insert(0, (0.0, 0.0));
        filled.push((end, 0.0));
        chart.draw_series(std::iter::once(Polygon::new(
            filled,
            pick(region).mix(FILL).filled(),
        )))?;
        chart.draw_series(LineSeries::new(
            points(in_flight),
            pick(region).stroke_width(2),
        ))?;
    }
    drop(chart);
    area.present()?;
    Ok(())
}
