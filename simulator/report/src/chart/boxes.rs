//! Boxes with whiskers, as SkyLB's Figure 8 has them: the box from the 25th to the 75th percentile, a line at the
//! median, whiskers from the 10th to the 90th, a triangle at the mean.

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use serde::Serialize;

use super::frame::{Area, Drawn, label_below, plain, range, stroke, svg};
use super::{Scale, name};
use crate::number::short;
use crate::palette::{GREY, TEXT, pick};
use crate::table::Table;

/// The quantiles that one box shows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// Lower end of the whisker.
    pub p10: f64,
    /// Lower edge of the box.
    pub p25: f64,
    /// Line in the box.
    pub p50: f64,
    /// Upper edge of the box.
    pub p75: f64,
    /// Upper end of the whisker.
    pub p90: f64,
    /// Triangle.
    pub mean: f64,
}

/// Boxes side by side, one for each series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BoxGroup {
    /// Name below the boxes.
    pub name: String,
    /// Boxes from left to right, in the order of the series.
    pub boxes: Vec<Quantiles>,
}

/// A plot of grouped boxes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Boxes {
    /// Groups from left to right.
    pub groups: Vec<BoxGroup>,
    /// Name of the vertical axis.
    pub y_name: String,
    /// Division of the vertical axis.
    pub scale: Scale,
}

impl Boxes {
    pub(super) fn table(&self, series: &[String]) -> Table {
        let mut table = Table::new(["", "p10", "p25", "p50", "p75", "p90", "mean"]);
        for group in &self.groups {
            for (index, one) in group.boxes.iter().enumerate() {
                let values = [one.p10, one.p25, one.p50, one.p75, one.p90, one.mean].map(short);
                let label = format!("{}, {}", group.name, name(series, index));
                table.push(core::iter::once(label).chain(values));
            }
        }
        table
    }

    pub(super) fn svg(&self, size: (u32, u32)) -> anyhow::Result<String> {
        svg(size, |area| {
            let all = self.groups.iter().flat_map(|group| &group.boxes);
            let (low, high) = range(self.scale, all.flat_map(|one| [one.p10, one.p90, one.mean]));
            match self.scale {
                Scale::Linear => self.draw(area, low..high, low),
                Scale::Log => self.draw(area, (low..high).log_scale(), low),
            }
        })
    }

    fn draw<Y>(&self, area: &Area<'_>, vertical: Y, bottom: f64) -> Drawn
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(26)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..self.groups.len().max(1) as f64, vertical)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .light_line_style(WHITE)
            .bold_line_style(GREY.mix(0.2))
            .axis_style(GREY)
            .y_desc(self.y_name.as_str())
            .y_label_formatter(&|value| short(*value))
            .label_style(plain(12))
            .axis_desc_style(plain(12))
            .draw()?;
        for (index, group) in self.groups.iter().enumerate() {
            let width = 0.8 / group.boxes.len().max(1) as f64;
            for (number, one) in group.boxes.iter().enumerate() {
                let left = index as f64 + 0.1 + (number as f64 + 0.12) * width;
                let right = left + 0.76 * width;
                let middle = f64::midpoint(left, right);
                let at = |x: f64, y: f64| (x, y.max(bottom));
                chart.draw_series([
                    stroke(at(middle, one.p10), at(middle, one.p25), TEXT),
                    stroke(at(middle, one.p75), at(middle, one.p90), TEXT),
                    stroke(at(left, one.p10), at(right, one.p10), TEXT),
                    stroke(at(left, one.p90), at(right, one.p90), TEXT),
                ])?;
                let corners = [at(left, one.p25), at(right, one.p75)];
                chart.draw_series([Rectangle::new(corners, pick(number).filled())])?;
                chart.draw_series([stroke(at(left, one.p50), at(right, one.p50), TEXT)])?;
                chart.draw_series([TriangleMarker::new(at(middle, one.mean), 4, TEXT)])?;
            }
            let middle = chart.backend_coord(&(index as f64 + 0.5, bottom));
            label_below(area, middle, &group.name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::count;
    use super::*;

    #[test]
    fn one_box_and_one_triangle_each() {
        let one = Quantiles {
            p10: 0.01,
            p25: 0.1,
            p50: 0.2,
            p75: 1.0,
            p90: 4.0,
            mean: 0.9,
        };
        for scale in [Scale::Linear, Scale::Log] {
            let chart = Boxes {
                groups: vec![BoxGroup {
                    name: "ToT".into(),
                    boxes: vec![one, one],
                }],
                y_name: "TTFT, s".into(),
                scale,
            };
            let svg = chart.svg((400, 300)).unwrap();
            assert_eq!((count(&svg, "rect"), count(&svg, "polygon")), (2, 2));
            assert!(svg.contains("ToT") && svg.contains("TTFT, s"));
        }
    }
}
