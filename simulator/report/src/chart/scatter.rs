//! Named points in a plane: one thing against another, as a trade-off.

use plotters::prelude::*;
use serde::Serialize;

use super::Scale;
use super::frame::{Area, Drawn, beside, plain, range, svg};
use crate::number::short;
use crate::palette::{GREY, pick};
use crate::table::Table;

/// A point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Name beside the point.
    pub name: String,
    /// Index of its series, which gives the colour.
    pub series: usize,
    /// Coordinates; a point that is not finite is left out.
    pub at: (f64, f64),
}

/// A plot of named points.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Scatter {
    /// Points in any order.
    pub points: Vec<Point>,
    /// Name of the horizontal axis.
    pub x_name: String,
    /// Name of the vertical axis.
    pub y_name: String,
}

impl Scatter {
    pub(super) fn svg(&self, size: (u32, u32)) -> anyhow::Result<String> {
        svg(size, |area| self.draw(area))
    }

    pub(super) fn table(&self) -> Table {
        let mut table = Table::new(["", &self.x_name, &self.y_name]);
        for Point { name, at, .. } in &self.points {
            table.push([name.clone(), short(at.0), short(at.1)]);
        }
        table
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
        let chart = Scatter {
            points: vec![point("here", 1.0), point("nowhere", f64::NAN)],
            x_name: "x".into(),
            y_name: "y".into(),
        };
        let svg = chart.svg((300, 200)).unwrap();
        assert_eq!(count(&svg, "circle"), 1);
        assert!(svg.contains("here") && !svg.contains("nowhere"));
    }
}
