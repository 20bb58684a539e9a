//! Grouped bars: few, large, each with its value, so that nobody has to read an axis.

use plotters::prelude::*;
use plotters::style::text_anchor::VPos;

use super::Scale;
use super::frame::{Area, Drawn, centred, range, svg};
use crate::palette::{GREY, TEXT, pick};

/// One bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// How high.
    pub value: f64,
    /// Between what its samples lie, when there are several.
    pub spread: Option<(f64, f64)>,
}

/// Bars side by side; the first has the first colour.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// What stands below.
    pub name: String,
    /// From left to right.
    pub bars: Vec<Bar>,
}

/// The chart.
#[derive(Clone, Debug)]
pub struct Bars {
    /// From left to right.
    pub groups: Vec<Group>,
    /// Width and height in pixels.
    pub size: (u32, u32),
    /// A line across, with its name.
    pub mark: Option<(f64, String)>,
}

impl Bars {
    /// Draws it; `format` makes the number over a bar.
    ///
    /// # Errors
    /// When the backend cannot draw.
    pub fn svg(&self, format: impl Fn(f64) -> String) -> anyhow::Result<String> {
        svg(self.size, |area| self.draw(area, &format))
    }

    fn draw(&self, area: &Area<'_>, format: &dyn Fn(f64) -> String) -> Drawn {
        let all = || self.groups.iter().flat_map(|group| &group.bars);
        let highest = all()
            .map(|bar| {
                bar.spread
                    .map_or(bar.value, |(_, high)| high.max(bar.value))
            })
            .chain(self.mark.iter().map(|(value, _)| *value));
        let (_, top) = range(Scale::Linear, highest);
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(26)
            .build_cartesian_2d(0.0..self.groups.len().max(1) as f64, 0.0..top)?;
        let end = self.groups.len() as f64;
        chart.draw_series(std::iter::once(PathElement::new(
            vec![(0.0, 0.0), (end, 0.0)],
            GREY,
        )))?;
        for (index, group) in self.groups.iter().enumerate() {
            // A group is one unit wide and a tenth of it is left empty at each side.
            let width = 0.8 / group.bars.len().max(1) as f64;
            for (number, bar) in group.bars.iter().enumerate() {
                if !bar.value.is_finite() {
                    continue;
                }
                let left = index as f64 + 0.1 + number as f64 * width;
                let middle = left + width / 2.0;
                let corners = [(left + width * 0.05, 0.0), (left + width * 0.95, bar.value)];
                chart.draw_series(std::iter::once(Rectangle::new(
                    corners,
                    pick(number).filled(),
                )))?;
                let mut label_at = bar.value;
                if let Some((low, high)) = bar.spread {
                    chart.draw_series(std::iter::once(PathElement::new(
                        vec![(middle, low), (middle, high)],
                        TEXT,
                    )))?;
                    label_at = label_at.max(high);
                }
                let at = (middle, label_at + top * 0.015);
                let label = Text::new(format(bar.value), at, centred(13, VPos::Bottom));
                chart.draw_series(std::iter::once(label))?;
            }
            let (x, y) = chart.backend_coord(&(index as f64 + 0.5, 0.0));
            let below = (x, y + 8);
            area.draw(&Text::new(
                group.name.clone(),
                below,
                centred(15, VPos::Top),
            ))?;
        }
        if let Some((value, name)) = &self.mark {
            chart.draw_series(DashedLineSeries::new(
                [(0.0, *value), (end, *value)],
                5,
                4,
                GREY.into(),
            ))?;
            let (x, y) = chart.backend_coord(&(0.02, *value));
            area.draw(&Text::new(
                name.clone(),
                (x, y - 14),
                super::frame::plain(12),
            ))?;
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
                Group {
                    name: "one".into(),
                    bars: vec![bar(1.0), bar(2.0)],
                },
                Group {
                    name: "two".into(),
                    bars: vec![bar(f64::NAN), bar(4.0)],
                },
            ],
            size: (400, 300),
            mark: Some((3.0, "goal".into())),
        };
        let svg = chart.svg(|value| format!("<{value:.1}>")).unwrap();
        assert_eq!(count(&svg, "rect"), 3);
        assert!(svg.contains("goal") && svg.contains("two") && svg.contains("&lt;4.0&gt;"));
        assert_eq!(svg, chart.svg(|value| format!("<{value:.1}>")).unwrap());
    }
}
