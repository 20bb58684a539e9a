//! Charts: a title, the names of the series, and lines or bands. A chart draws itself as SVG.
//!
//! The first series has the first colour of [`crate::palette`], in every chart and in the legend.

mod bands;
mod frame;
mod lines;

use serde::Serialize;

pub use bands::{Band, Bands};
pub use lines::{Curve, CurveStyle, Lines};

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
    pub fn svg(&self) -> anyhow::Result<String> {
        match &self.plot {
            Plot::Lines(lines) => lines.svg(self.size),
            Plot::Bands(bands) => bands.svg(self.size),
        }
    }
}

#[cfg(test)]
mod tests {
    /// Number of shapes in a chart, by their SVG element.
    pub(super) fn count(svg: &str, element: &str) -> usize {
        svg.matches(&format!("<{element} ")).count()
    }
}
