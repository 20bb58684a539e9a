//! Lines over a number: a rate, a count of replicas, time.

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::Scale;
use super::frame::{Area, Drawn, beside, plain, range, svg};
use crate::number::short;
use crate::palette::{GREY, pick};

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its colour.
    pub series: usize,
    /// From left to right; a point that is not finite is left out.
    pub points: Vec<(f64, f64)>,
}

/// The chart.
#[derive(Clone, Debug)]
pub struct Lines {
    /// The lines.
    pub lines: Vec<Line>,
    /// Below the axis.
    pub x_name: String,
    /// Beside the axis.
    pub y_name: String,
    /// How the vertical axis is divided.
    pub scale: Scale,
    /// A line across, with its name.
    pub mark: Option<(f64, String)>,
    /// Lines upright, each with its name: when something happened.
    pub moments: Vec<(f64, String)>,
    /// Whether each point is shown; for few points.
    pub dots: bool,
    /// Width and height in pixels.
    pub size: (u32, u32),
}

impl Lines {
    /// Draws it.
    ///
    /// # Errors
    /// When the backend cannot draw.
    pub fn svg(&self) -> anyhow::Result<String> {
        svg(self.size, |area| {
            let marked = self.mark.iter().map(|(value, _)| *value);
            let values = self.points().map(|(_, y)| y).chain(marked);
            let (low, high) = range(self.scale, values);
            match self.scale {
                Scale::Linear => self.draw(area, low..high, (low, high)),
                Scale::Log => self.draw(area, (low..high).log_scale(), (low, high)),
            }
        })
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.lines.iter().flat_map(|line| usable(&line.points))
    }

    fn across(&self) -> (f64, f64) {
        let mut ends = (f64::INFINITY, f64::NEG_INFINITY);
        for (x, _) in self.points() {
            ends = (ends.0.min(x), ends.1.max(x));
        }
        if ends.0 < ends.1 {
            ends
        } else if ends.0.is_finite() {
            (ends.0 - 0.5, ends.0 + 0.5)
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
        if let Some((value, name)) = &self.mark {
            let line = [(left, *value), (right, *value)];
            chart.draw_series(DashedLineSeries::new(line, 5, 4, GREY.into()))?;
            let (x, y) = chart.backend_coord(&(left, *value));
            area.draw(&Text::new(name.clone(), (x + 4, y - 8), beside(12)))?;
        }
        for (number, (moment, name)) in self.moments.iter().enumerate() {
            let line = [(*moment, bottom), (*moment, top)];
            chart.draw_series(DashedLineSeries::new(line, 3, 3, GREY.into()))?;
            let (x, y) = chart.backend_coord(&(*moment, top));
            let below = y + 8 + 14 * i32::try_from(number).unwrap_or(0);
            area.draw(&Text::new(name.clone(), (x + 4, below), beside(12)))?;
        }
        for line in &self.lines {
            let points: Vec<(f64, f64)> = usable(&line.points)
                .map(|(x, y)| (x, y.max(bottom)))
                .collect();
            let colour = pick(line.series);
            if self.dots {
                let dots = points.iter().map(|&at| Circle::new(at, 3, colour.filled()));
                chart.draw_series(dots)?;
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
        Lines {
            lines: vec![
                Line {
                    series: 0,
                    points: vec![(1.0, 0.1), (2.0, 10.0), (3.0, f64::NAN)],
                },
                Line {
                    series: 1,
                    points: vec![(1.0, 0.0), (2.0, 1.0)],
                },
            ],
            x_name: "requests/s".into(),
            y_name: "seconds".into(),
            scale,
            mark: Some((5.0, "goal".into())),
            moments: vec![(1.5, "more".into())],
            dots: true,
            size: (400, 300),
        }
    }

    #[test]
    fn both_scales_draw_every_finite_point() {
        for scale in [Scale::Linear, Scale::Log] {
            let svg = chart(scale).svg().unwrap();
            assert_eq!(count(&svg, "circle"), 4);
            assert!(svg.contains("goal") && svg.contains("more") && svg.contains("requests/s"));
        }
    }

    #[test]
    fn nothing_to_draw_is_an_empty_chart() {
        let mut chart = chart(Scale::Log);
        chart.lines.clear();
        chart.mark = None;
        assert_eq!(count(&chart.svg().unwrap(), "circle"), 0);
    }
}
