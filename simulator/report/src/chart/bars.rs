//! Grouped bars: few, large, each with its value above, so that the chart needs no vertical axis.

use plotters::prelude::*;
use plotters::style::text_anchor::VPos;
use serde::Serialize;

use super::frame::{Area, Drawn, centred, label_below, plain, range, stroke, svg};
use super::{Scale, name};
use crate::number::short;
use crate::palette::{GREY, TEXT, pick};
use crate::table::Table;

/// A bar.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// Height; a bar of `NaN` is left out.
    pub value: f64,
    /// Least and greatest sample, when there are several.
    pub spread: Option<(f64, f64)>,
}

/// Bars side by side, one for each series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BarGroup {
    /// Name below the bars.
    pub name: String,
    /// Bars from left to right, in the order of the series.
    pub bars: Vec<Bar>,
}

/// A plot of grouped bars.
#[derive(Clone, Debug, Serialize)]
pub struct Bars {
    /// Groups from left to right.
    pub groups: Vec<BarGroup>,
    /// A dashed line across the plot, with its name.
    pub reference: Option<(f64, String)>,
    /// Formats the number above a bar.
    #[serde(skip)]
    pub format: fn(f64) -> String,
}

impl Default for Bars {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            reference: None,
            format: short,
        }
    }
}

impl Bars {
    pub(super) fn svg(&self, size: (u32, u32)) -> anyhow::Result<String> {
        svg(size, |area| self.draw(area))
    }

    pub(super) fn table(&self, series: &[String]) -> Table {
        let bars = self.groups.first().map_or(0, |group| group.bars.len());
        let names = (0..bars).map(|index| name(series, index));
        let mut table = Table::new(core::iter::once("").chain(names));
        for group in &self.groups {
            let values = group.bars.iter().map(|bar| (self.format)(bar.value));
            table.push(core::iter::once(group.name.clone()).chain(values));
        }
        table
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        let bars = self.groups.iter().flat_map(|group| &group.bars);
        let tops = bars.map(|bar| {
            bar.spread
                .map_or(bar.value, |(_, high)| high.max(bar.value))
        });
        let references = self.reference.iter().map(|(value, _)| *value);
        let (_, top) = range(Scale::Linear, tops.chain(references));
        let end = self.groups.len() as f64;
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(26)
            .build_cartesian_2d(0.0..end.max(1.0), 0.0..top)?;
        chart.draw_series([stroke((0.0, 0.0), (end, 0.0), GREY)])?;
        for (index, group) in self.groups.iter().enumerate() {
            // A group is one unit wide and a tenth of it is left empty at each side.
            let width = 0.8 / group.bars.len().max(1) as f64;
            let bars = group.bars.iter().enumerate();
            for (number, bar) in bars.filter(|(_, bar)| bar.value.is_finite()) {
                let left = index as f64 + 0.1 + number as f64 * width;
                let middle = left + width / 2.0;
                let corners = [(left + width * 0.05, 0.0), (left + width * 0.95, bar.value)];
                chart.draw_series([Rectangle::new(corners, pick(number).filled())])?;
                let mut label_at = bar.value;
                if let Some((low, high)) = bar.spread {
                    chart.draw_series([stroke((middle, low), (middle, high), TEXT)])?;
                    label_at = label_at.max(high);
                }
                let at = (middle, label_at + top * 0.015);
                let label = Text::new((self.format)(bar.value), at, centred(13, VPos::Bottom));
                chart.draw_series([label])?;
            }
            let middle = chart.backend_coord(&(index as f64 + 0.5, 0.0));
            label_below(area, middle, &group.name)?;
        }
        if let Some((value, name)) = &self.reference {
            let line = [(0.0, *value), (end, *value)];
            chart.draw_series(DashedLineSeries::new(line, 5, 4, GREY.into()))?;
            let (x, y) = chart.backend_coord(&(0.02, *value));
            area.draw(&Text::new(name.clone(), (x, y - 14), plain(12)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::count;
    use super::*;

    fn bar(value: f64) -> Bar {
        Bar {
            value,
            spread: None,
        }
    }

    #[test]
    fn each_bar_has_its_number_and_its_height() {
        let chart = Bars {
            groups: vec![
                BarGroup {
                    name: "one".into(),
                    bars: vec![bar(1.0), bar(2.0)],
                },
                BarGroup {
                    name: "two".into(),
                    bars: vec![bar(f64::NAN), bar(4.0)],
                },
            ],
            reference: Some((3.0, "goal".into())),
            format: |value| format!("<{value:.1}>"),
        };
        let svg = chart.svg((400, 300)).unwrap();
        assert_eq!(count(&svg, "rect"), 3);
        assert!(svg.contains("goal") && svg.contains("two") && svg.contains("&lt;4.0&gt;"));
        assert_eq!(svg, chart.svg((400, 300)).unwrap());
    }
}
