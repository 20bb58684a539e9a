//! Charts as SVG. Each is a plain description that draws itself; colours go by the number of a series.

mod bars;
mod boxes;
mod frame;
mod lines;
mod points;

pub use bars::{Bar, Bars, Group};
pub use boxes::{BoxGroup, Boxes, Quantiles};
pub use lines::{Line, Lines};
pub use points::{Point, Points};

/// How an axis is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from zero.
    #[default]
    Linear,
    /// By powers of ten.
    Log,
}

#[cfg(test)]
mod tests {
    /// The shapes of a chart, by their SVG elements.
    pub(super) fn count(svg: &str, element: &str) -> usize {
        svg.matches(&format!("<{element} ")).count()
    }
}
