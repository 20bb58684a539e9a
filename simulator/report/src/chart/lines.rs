//! Lines over a number: a rate, a count of replicas, time.

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use serde::Serialize;

use super::Scale;
use super::frame::{Area, Drawn, before, label_below, log_ticks, plain, range, svg};
use crate::number::tick;
use crate::palette::{GREY, pick};

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
    /// A line.
    #[default]
    Plain,
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
    /// Division of the horizontal axis.
    pub x_scale: Scale,
    /// Greatest value that the vertical axis shows at least; makes several plots comparable.
    pub y_max: Option<f64>,
    /// Heights with a line and a name, instead of even steps. The vertical axis then ends at `y_max`.
    pub y_ticks: Vec<(f64, String)>,
}

impl Lines {
    pub(super) fn svg(&self, size: (u32, u32)) -> anyhow::Result<String> {
        svg(size, |area| {
            let values = self.points().map(|(_, y)| y).chain(self.y_max);
            let (low, mut high) = range(Scale::Linear, values);
            if let Some(end) = self.y_max.filter(|_| !self.y_ticks.is_empty()) {
                high = end;
            }
            let (left, right) = self.across();
            let ends = [left, right, low, high];
            match self.x_scale {
                Scale::Linear => self.draw(area, left..right, low..high, ends),
                Scale::Log => self.draw(area, (left..right).log_scale(), low..high, ends),
            }
        })
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.lines.iter().flat_map(|line| usable(&line.points))
    }

    fn across(&self) -> (f64, f64) {
        if self.x_scale == Scale::Log {
            return range(Scale::Log, self.points().map(|(x, _)| x));
        }
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

    fn draw<X, Y>(&self, area: &Area<'_>, horizontal: X, vertical: Y, ends: [f64; 4]) -> Drawn
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let [left, right, bottom, _] = ends;
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(56)
            .build_cartesian_2d(horizontal, vertical)?;
        let mut mesh = chart.configure_mesh();
        if !self.y_ticks.is_empty() {
            mesh.disable_y_mesh().y_labels(0);
        }
        mesh.disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GREY.mix(0.2))
            .axis_style(GREY)
            .x_desc(self.x_name.as_str())
            .y_desc(self.y_name.as_str())
            .x_label_formatter(&|value| match self.x_scale {
                Scale::Linear => tick(*value),
                Scale::Log => String::new(),
            })
            .y_label_formatter(&|value| tick(*value))
            .label_style(plain(13))
            .axis_desc_style(plain(13))
            .draw()?;
        if self.x_scale == Scale::Log {
            for value in log_ticks(left, right) {
                let at = chart.backend_coord(&(value, bottom));
                label_below(area, at, &tick(value))?;
            }
        }
        for (value, name) in &self.y_ticks {
            let line = [(left, *value), (right, *value)];
            chart.draw_series([PathElement::new(line, GREY.mix(0.2))])?;
            let (x, y) = chart.backend_coord(&(left, *value));
            area.draw(&Text::new(name.clone(), (x - 6, y), before(13)))?;
        }
        for line in &self.lines {
            let points: Vec<(f64, f64)> = usable(&line.points)
                .map(|(x, y)| (x, y.max(bottom)))
                .collect();
            let colour = pick(line.series);
            match line.style {
                CurveStyle::Plain => {}
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

    /// Width of a curve, and of nothing else.
    const CURVE: &str = "stroke-width=\"2\"";

    fn line(points: &[(f64, f64)], style: CurveStyle) -> Curve {
        Curve {
            series: 0,
            points: points.into(),
            style,
        }
    }

    #[test]
    fn a_line_joins_its_finite_points_and_an_area_reaches_the_axis() {
        let points = [(1.0, 0.1), (2.0, 10.0), (3.0, f64::NAN)];
        let lines = Lines {
            lines: vec![
                line(&points, CurveStyle::Plain),
                line(&points, CurveStyle::Area),
            ],
            x_name: "requests/s".into(),
            ..Lines::default()
        };
        let svg = lines.svg((400, 300)).unwrap();
        assert_eq!(count(&svg, "polygon"), 1);
        assert_eq!(svg.matches(CURVE).count(), 1);
        assert!(svg.contains("requests/s") && !svg.contains("NaN"));
    }

    #[test]
    fn named_heights_replace_the_even_steps_of_a_cumulative_curve() {
        let points = [(10.0, 0.0), (100.0, 0.5), (1_000.0, 1.0)];
        let lines = Lines {
            lines: vec![line(&points, CurveStyle::Plain)],
            x_scale: Scale::Log,
            y_max: Some(1.0),
            y_ticks: vec![(0.5, "p50".into()), (0.9, "p90".into())],
            ..Lines::default()
        };
        let svg = lines.svg((400, 300)).unwrap();
        let curve = svg
            .split("points=\"")
            .filter(|rest| rest.matches(',').count() >= 3);
        let curve = curve
            .filter_map(|rest| rest.split('"').next())
            .last()
            .unwrap();
        let across = curve
            .split_whitespace()
            .filter_map(|point| point.split(',').next()?.parse().ok());
        let across: Vec<i32> = across.collect();
        assert!(
            (across[1] - across[0]).abs_diff(across[2] - across[1]) <= 1,
            "{curve}"
        );
        assert!(svg.contains("p50") && svg.contains("p90") && !svg.contains("0.20"));
        for (value, times) in [("20", 1), ("500", 1), ("1000", 1), ("400", 0)] {
            let label = format!(">\n{value}\n</text>");
            assert_eq!(svg.matches(&label).count(), times, "{value} in {svg}");
        }
    }

    #[test]
    fn a_plot_without_lines_is_an_empty_chart() {
        let svg = Lines::default().svg((400, 300)).unwrap();
        assert!(!svg.contains(CURVE), "{svg}");
    }
}
