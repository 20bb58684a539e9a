//! Colours that stay apart in print and for the colour-blind (Okabe and Ito).

use plotters::style::RGBColor;

/// Colours of the series, in order; a ninth series has the first colour again.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(120, 94, 60),
    RGBColor(110, 110, 110),
];

/// Colour of axes.
pub(crate) const GREY: RGBColor = RGBColor(90, 90, 90);
/// Colour of text.
pub(crate) const TEXT: RGBColor = RGBColor(34, 34, 34);

/// The colour of a series.
#[must_use]
pub(crate) fn pick(series: usize) -> RGBColor {
    COLOURS.get(series % COLOURS.len()).copied().unwrap_or(GREY)
}

/// The colour of a series, as CSS.
#[must_use]
pub fn css(series: usize) -> String {
    let RGBColor(red, green, blue) = pick(series);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn colours_differ_and_start_again() {
        let all: std::collections::BTreeSet<String> = (0..8).map(super::css).collect();
        assert_eq!(all.len(), 8);
        assert_eq!(super::css(8), super::css(0));
        assert_eq!(super::css(0), "#0072b2");
    }
}
