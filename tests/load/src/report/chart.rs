//! Grouped bars as SVG: few, large, each with its value, so that nobody has to read an axis.

use anyhow::anyhow;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Run;

const SIZE: (u32, u32) = (520, 300);
/// Colours that stay apart in print and for the colour-blind (Okabe and Ito); one for each run, again from the first.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
];
pub(crate) const GREY: RGBColor = RGBColor(90, 90, 90);
pub(crate) const TEXT: RGBColor = RGBColor(34, 34, 34);

/// The colour of a run, as CSS.
pub(crate) fn colour(run: usize) -> String {
    let RGBColor(red, green, blue) = pick(run);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// One group of bars: its name, and a value of each run.
pub(super) struct Group {
    pub(super) name: &'static str,
    pub(super) value: fn(&Run) -> f64,
}

/// Draws one chart; `format` makes the number over a bar.
pub(super) fn bars(
    runs: &[Run],
    groups: &[Group],
    format: fn(f64) -> String,
) -> anyhow::Result<String> {
    let mut svg = String::new();
    draw(&mut svg, runs, groups, format)
        .map_err(|error| anyhow!("cannot draw a chart: {error}"))?;
    Ok(svg)
}

fn draw(
    svg: &mut String,
    runs: &[Run],
    groups: &[Group],
    format: fn(f64) -> String,
) -> Result<(), Box<dyn std::error::Error>> {
    let highest = groups
        .iter()
        .flat_map(|group| runs.iter().map(group.value))
        .fold(0.0, f64::max);
    let top = if highest > 0.0 { highest * 1.15 } else { 1.0 };
    // A group is one unit wide and a tenth of it is left empty at each side.
    let width = 0.8 / runs.len().max(1) as f64;

    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .x_label_area_size(26)
        .build_cartesian_2d(0.0..groups.len().max(1) as f64, 0.0..top)?;
    let centred = |size: i32, vertical: VPos, colour: RGBColor| {
        ("sans-serif", size)
            .into_font()
            .color(&colour)
            .pos(Pos::new(HPos::Center, vertical))
    };
    chart.draw_series(std::iter::once(PathElement::new(
        vec![(0.0, 0.0), (groups.len() as f64, 0.0)],
        GREY,
    )))?;
    for (index, group) in groups.iter().enumerate() {
        for (number, run) in runs.iter().enumerate() {
            let value = (group.value)(run);
            let left = index as f64 + 0.1 + number as f64 * width;
            let bar = [(left + width * 0.05, 0.0), (left + width * 0.95, value)];
            chart.draw_series(std::iter::once(Rectangle::new(bar, pick(number).filled())))?;
            let label = Text::new(
                format(value),
                (left + width / 2.0, value + top * 0.015),
                centred(13, VPos::Bottom, TEXT),
            );
            chart.draw_series(std::iter::once(label))?;
        }
        let (x, y) = chart.backend_coord(&(index as f64 + 0.5, 0.0));
        area.draw(&Text::new(
            group.name,
            (x, y + 8),
            centred(15, VPos::Top, TEXT),
        ))?;
    }
    drop(chart);
    area.present()?;
    Ok(())
}

pub(crate) fn pick(run: usize) -> RGBColor {
    COLOURS.get(run % COLOURS.len()).copied().unwrap_or(GREY)
}
