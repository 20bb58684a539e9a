//! Named points in a plane: one thing against another, as a trade-off.

use plotters::prelude::*;

use super::Scale;
use super::frame::{Area, Drawn, beside, plain, range, svg};
use crate::number::short;
use crate::palette::{GREY, pick};

/// One point.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// What stands beside it.
    pub name: String,
    /// Its colour.
    pub series: usize,
    /// Where it is.
    pub at: (f64, f64),
}

/// The chart.
#[derive(Clone, Debug)]
pub struct Points {
    /// The points.
    pub points: Vec<Point>,
    /// Below the axis.
    pub x_name: String,
    /// Beside the axis.
    pub y_name: String,
    /// Width and height in pixels.
    pub size: (u32, u32),
}

impl Points {
    /// Draws it.
    ///
    /// # Errors
    /// When the backend cannot draw.
    pub fn svg(&self) -> anyhow::Result<String> {
        svg(self.size, |area| self.draw(area))
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        let (_, right) = range(Scale::Linear, self.points.iter().map(|point| point.at.0));
        let (_, top) = range(Scale::Linear, self.points.iter().map(|point| point.at.1));
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(38)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..right * 1.1, 0.0..top)?;
        chart
            .configure_mesh()
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
        for point in &self.points {
            if !(point.at.0.is_finite() && point.at.1.is_finite()) {
                continue;
            }
            chart.draw_series([Circle::new(point.at, 5, pick(point.series).filled())])?;
            let (x, y) = chart.backend_coord(&point.at);
            area.draw(&Text::new(point.name.clone(), (x + 8, y), beside(12)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::count;
    use super::*;

    #[test]
    fn every_finite_point_has_its_name() {
        let point = |name: &str, x| Point {
            name: name.into(),
            series: 0,
            at: (x, 0.5),
        };
        let chart = Points {
            points: vec![point("here", 1.0), point("nowhere", f64::NAN)],
            x_name: "x".into(),
            y_name: "y".into(),
            size: (300, 200),
        };
        let svg = chart.svg().unwrap();
        assert_eq!(count(&svg, "circle"), 1);
        assert!(svg.contains("here") && !svg.contains("nowhere"));
    }
}
