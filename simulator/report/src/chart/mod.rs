//! Charts: a title, the names of the series, and one of four plots. A chart draws itself as SVG.
//!
//! The first series has the first colour of [`crate::palette`], in every chart and in the legend.

mod bands;
mod bars;
mod boxes;
mod frame;
mod lines;

use serde::Serialize;

pub use bands::{Band, Bands};
pub use bars::{Bar, BarGroup, Bars};
pub use boxes::{BoxGroup, Boxes, Quantiles};
pub use lines::{Curve, CurveStyle, Lines};

use crate::table::Table;

/// Two charts of this size fit side by side on a page.
const SIZE: (u32, u32) = (520, 300);

/// A plot with its title above and its caption below.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// Title above the plot.
    pub title: String,
    /// Caption below the plot: what the figure is, and whether more of it is better.
    pub caption: String,
    /// Names of the series in the order of their colours; the legend of the section.
    pub series: Vec<String>,
    /// The plot.
    pub plot: Plot,
    /// Width and height in pixels.
    #[serde(skip)]
    pub size: (u32, u32),
}

/// The kinds of plots.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Plot {
    /// Grouped bars.
    Bars(Bars),
    /// Grouped boxes with whiskers.
    Boxes(Boxes),
    /// Lines over a number.
    Lines(Lines),
    /// Filled bands above each other, over time.
    Bands(Bands),
}

/// How an axis is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Evenly, from zero.
    #[default]
    Linear,
    /// Logarithmically, by powers of ten.
    Log,
}

impl Chart {
    /// A chart of the usual size.
    #[must_use]
    pub fn new<S: Into<String>>(
        title: impl Into<String>,
        caption: impl Into<String>,
        series: impl IntoIterator<Item = S>,
        plot: Plot,
    ) -> Self {
        Self {
            title: title.into(),
            caption: caption.into(),
            series: series.into_iter().map(Into::into).collect(),
            plot,
            size: SIZE,
        }
    }

    /// Draws the plot.
    ///
    /// # Errors
    /// When the SVG backend cannot draw.
    pub fn svg(&self) -> anyhow::Result<String> {
        match &self.plot {
            Plot::Bars(bars) => bars.svg(self.size),
            Plot::Boxes(boxes) => boxes.svg(self.size),
            Plot::Lines(lines) => lines.svg(self.size),
            Plot::Bands(bands) => bands.svg(self.size),
        }
    }

    /// The values of the plot as a table, for formats without pictures. `None` when there are too many to read.
    #[must_use]
    pub fn table(&self) -> Option<Table> {
        match &self.plot {
            Plot::Bars(bars) => Some(bars.table(&self.series)),
            Plot::Boxes(boxes) => Some(boxes.table(&self.series)),
            Plot::Lines(lines) => lines.table(&self.series),
            Plot::Bands(_) => None,
        }
    }
}

/// The name of a series; empty when the chart names none.
fn name(series: &[String], index: usize) -> &str {
    series.get(index).map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of shapes in a chart, by their SVG element.
    pub(super) fn count(svg: &str, element: &str) -> usize {
        svg.matches(&format!("<{element} ")).count()
    }

    #[test]
    fn every_plot_has_its_values_as_a_table() {
        let bar = |value| Bar {
            value,
            spread: None,
        };
        let bars = Bars {
            groups: vec![BarGroup {
                name: "TTFT".into(),
                bars: vec![bar(1.0), bar(2.0)],
            }],
            ..Bars::default()
        };
        let chart = Chart::new("t", "c", ["a", "b"], Plot::Bars(bars));
        assert_eq!(chart.table().unwrap().csv(), ",a,b\nTTFT,1.00,2.00\n");
        let line = |series, y| Curve {
            series,
            points: vec![(1.0, y)],
            style: CurveStyle::Plain,
        };
        let lines = Lines {
            lines: vec![line(0, 3.0), line(1, 4.0)],
            x_name: "rate".into(),
            ..Lines::default()
        };
        let chart = Chart::new("t", "c", ["a", "b"], Plot::Lines(lines));
        assert_eq!(chart.table().unwrap().csv(), "rate,a,b\n1.00,3.00,4.00\n");
    }
}
