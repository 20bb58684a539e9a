//! Lines over a number: a rate, a count of replicas, time.

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use serde::Serialize;

use super::frame::{Area, Drawn, beside, plain, range, svg};
use super::{Scale, name};
use crate::number::short;
use crate::palette::{GREY, pick};
use crate::table::Table;

/// A plot with more points on a line than this is not turned into a table.
const TABLE_ROWS_MAX: usize = 24;

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// Index of its series, which gives the colour.
    pub series: usize,
    /// Points from left to right; a point that is not finite is left out.
    pub points: Vec<(f64, f64)>,
    /// How the points are joined.
    pub style: CurveStyle,
}

/// How the points of a line are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CurveStyle {
    /// A line alone, for many points.
    #[default]
    Plain,
    /// A line with a dot on each point, for few points.
    Dotted,
    /// A translucent area that reaches down to the axis.
    Area,
}

/// A plot of lines.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Lines {
    /// Lines, from back to front.
    pub lines: Vec<Curve>,
    /// Name of the horizontal axis.
    pub x_name: String,
    /// Name of the vertical axis.
    pub y_name: String,
    /// Division of the vertical axis.
    pub scale: Scale,
    /// Greatest value that the vertical axis shows at least; makes several plots comparable.
    pub y_max: Option<f64>,
    /// A dashed line across the plot, with its name.
    pub reference: Option<(f64, String)>,
    /// Dashed upright lines, each with its name: when something happened.
    pub events: Vec<(f64, String)>,
}

impl Lines {
    pub(super) fn svg(&self, size: (u32, u32)) -> anyhow::Result<String> {
        svg(size, |area| {
            let shown = self.reference.iter().map(|(value, _)| *value);
            let values = self.points().map(|(_, y)| y).chain(shown).chain(self.y_max);
            let (low, high) = range(self.scale, values);
            match self.scale {
                Scale::Linear => self.draw(area, low..high, (low, high)),
                Scale::Log => self.draw(area, (low..high).log_scale(), (low, high)),
            }
        })
    }

    pub(super) fn table(&self, series: &[String]) -> Option<Table> {
        let mut xs: Vec<f64> = self.points().map(|(x, _)| x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        if xs.len() > TABLE_ROWS_MAX {
            return None;
        }
        let names = self.lines.iter().map(|line| name(series, line.series));
        let mut table = Table::new(core::iter::once(self.x_name.as_str()).chain(names));
        for x in xs {
            let value = |line: &Curve| {
                let point = line.points.iter().find(|point| point.0 == x);
                point.map_or_else(String::new, |point| short(point.1))
            };
            table.push(core::iter::once(short(x)).chain(self.lines.iter().map(value)));
        }
        Some(table)
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.lines.iter().flat_map(|line| usable(&line.points))
    }

    fn across(&self) -> (f64, f64) {
        let xs = || self.points().map(|(x, _)| x);
        let (least, greatest) = (
            xs().fold(f64::INFINITY, f64::min),
            xs().fold(f64::MIN, f64::max),
        );
        if least < greatest {
            (least, greatest)
        } else if least.is_finite() {
            (least - 0.5, least + 0.5)
        } else {
            (0.0, 1.0)
        }
    }

    fn draw<Y>(&self, area: &Area<'_>, vertical: Y, (bottom, top): (f64, f64)) -> Drawn
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let (left, right) = self.across();
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(38)
            .y_label_area_size(56)
            .build_cartesian_2d(left..right, vertical)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GREY.mix(0.2))
            .axis_style(GREY)
            .x_desc(self.x_name.as_str())
            .y_desc(self.y_name.as_str())
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&|value| short(*value))
            .label_style(plain(12))
            .axis_desc_style(plain(12))
            .draw()?;
        if let Some((value, name)) = &self.reference {
            let line = [(left, *value), (right, *value)];
            chart.draw_series(DashedLineSeries::new(line, 5, 4, GREY.into()))?;
            let (x, y) = chart.backend_coord(&(left, *value));
            area.draw(&Text::new(name.clone(), (x + 4, y - 8), beside(12)))?;
        }
        for (number, (at, name)) in self.events.iter().enumerate() {
            let line = [(*at, bottom), (*at, top)];
            chart.draw_series(DashedLineSeries::new(line, 3, 3, GREY.into()))?;
            let (x, y) = chart.backend_coord(&(*at, top));
            let below = y + 8 + 14 * i32::try_from(number).unwrap_or(0);
            area.draw(&Text::new(name.clone(), (x + 4, below), beside(12)))?;
        }
        for line in &self.lines {
            let points: Vec<(f64, f64)> = usable(&line.points)
                .map(|(x, y)| (x, y.max(bottom)))
                .collect();
            let colour = pick(line.series);
            match line.style {
                CurveStyle::Plain => {}
                CurveStyle::Dotted => {
                    let dots = points.iter().map(|&at| Circle::new(at, 3, colour.filled()));
                    chart.draw_series(dots)?;
                }
                CurveStyle::Area => {
                    let ends = points.first().zip(points.last());
                    let base = ends.map(|(first, last)| [(last.0, bottom), (first.0, bottom)]);
                    let outline = points.iter().copied().chain(base.into_iter().flatten());
                    let area = Polygon::new(outline.collect::<Vec<_>>(), colour.mix(0.35).filled());
                    chart.draw_series([area])?;
                    continue;
                }
            }
            chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        }
        Ok(())
    }
}

fn usable(points: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> + '_ {
    points
        .iter()
        .copied()
        .filter(|(x, y)| x.is_finite() && y.is_finite())
}

#[cfg(test)]
mod tests {
    use super::super::tests::count;
    use super::*;

    fn chart(scale: Scale) -> Lines {
        let line = |series, points: &[(f64, f64)], style| Curve {
            series,
            points: points.into(),
            style,
        };
        Lines {
            lines: vec![
                line(
                    0,
                    &[(1.0, 0.1), (2.0, 10.0), (3.0, f64::NAN)],
                    CurveStyle::Dotted,
                ),
                line(1, &[(1.0, 0.0), (2.0, 1.0)], CurveStyle::Dotted),
                line(1, &[(1.0, 0.5), (2.0, 1.0)], CurveStyle::Area),
            ],
            x_name: "requests/s".into(),
            y_name: "seconds".into(),
            scale,
            y_max: None,
            reference: Some((5.0, "goal".into())),
            events: vec![(1.5, "more".into())],
        }
    }

    #[test]
    fn both_scales_draw_every_finite_point() {
        for scale in [Scale::Linear, Scale::Log] {
            let svg = chart(scale).svg((400, 300)).unwrap();
            assert_eq!((count(&svg, "circle"), count(&svg, "polygon")), (4, 1));
            assert!(svg.contains("goal") && svg.contains("more") && svg.contains("requests/s"));
        }
    }

    #[test]
    fn a_plot_without_lines_is_an_empty_chart() {
        let svg = Lines::default().svg((400, 300)).unwrap();
        assert_eq!(count(&svg, "circle"), 0);
    }
}
