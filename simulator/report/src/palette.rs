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
pub(crate) fn pick(series: usize) -> RGBColor {
    COLOURS.get(series % COLOURS.len()).copied().unwrap_or(GREY)
}

/// The colour of a series, as CSS.
pub fn css(series: usize) -> String {
    hex(pick(series))
}

/// The colour of a series, as CSS of a page with [`style_sheet`].
pub(crate) fn variable(series: usize) -> String {
    format!("var(--series-{})", series % COLOURS.len())
}

fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Colours of the series on a dark page: the darkest of the usual colours would sink into it, and are lighter here.
const DARK_COLOURS: [RGBColor; 8] = [
    RGBColor(77, 166, 224),
    RGBColor(240, 176, 48),
    RGBColor(45, 190, 145),
    RGBColor(220, 150, 190),
    RGBColor(120, 200, 240),
    RGBColor(240, 130, 60),
    RGBColor(180, 150, 110),
    RGBColor(160, 160, 160),
];

/// Style sheet that names the colours of series and of axes, and gives charts those of a dark page.
///
/// A chart has its colours as attributes, which a style sheet overrides.
pub(crate) fn style_sheet() -> String {
    let names = |colours: &[RGBColor; 8]| {
        let named = (0..).zip(colours);
        let named = named.map(|(index, colour)| format!("--series-{index}:{};", hex(*colour)));
        named.collect::<String>()
    };
    let series = (0..).zip(COLOURS.iter().copied());
    let series = series.map(|(index, colour)| (colour, format!("--series-{index}")));
    let axes = [(GREY, "--muted".to_owned()), (TEXT, "--text".to_owned())];
    let rules = series.chain(axes).map(|(colour, name)| {
        let colour = hex(colour).to_uppercase();
        ["fill", "stroke"]
            .map(|attribute| format!("svg [{attribute}=\"{colour}\"]{{{attribute}:var({name})}}\n"))
    });
    format!(
        ":root{{{}}}\n@media (prefers-color-scheme: dark){{:root{{{}}}}}\n{}",
        names(&COLOURS),
        names(&DARK_COLOURS),
        rules.flatten().collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_dark_page_overrides_the_colours_of_a_chart() {
        let sheet = super::style_sheet();
        assert!(sheet.contains("svg [stroke=\"#0072B2\"]{stroke:var(--series-0)}"));
        assert!(sheet.contains("svg [fill=\"#222222\"]{fill:var(--text)}"));
        assert_eq!(sheet.matches("--series-7:#").count(), 2);
    }

    #[test]
    fn colours_differ_and_start_again() {
        let all: std::collections::BTreeSet<String> = (0..8).map(super::css).collect();
        assert_eq!(all.len(), 8);
        assert_eq!(super::css(8), super::css(0));
        assert_eq!(super::css(0), "#0072b2");
    }
}
