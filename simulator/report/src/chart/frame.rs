//! Shared parts of the plots: the drawing area, fonts, and the range of an axis.

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Scale;
use crate::palette::TEXT;

/// Result of drawing; the errors of plotters are generic over the backend.
pub(super) type Drawn = Result<(), Box<dyn std::error::Error>>;
/// Area that a plot draws on.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A log axis shows nothing smaller than this share of its greatest value.
const LOG_SHARE_MIN: f64 = 1e-5;

/// A log axis over more decades than these names powers of ten alone.
const LOG_DECADES_STEPPED: f64 = 3.0;

/// Draws a new SVG of this size.
pub(super) fn svg(
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Drawn,
) -> anyhow::Result<String> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let drawn = draw(&area).and_then(|()| Ok(area.present()?));
    drop(area);
    drawn.map_err(|error| anyhow!("cannot draw a chart: {error}"))?;
    Ok(svg)
}

/// Text of axes.
pub(super) fn plain(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&TEXT)
}

/// Text centred on its position.
pub(super) fn centred(size: i32, vertical: VPos) -> TextStyle<'static> {
    plain(size).pos(Pos::new(HPos::Center, vertical))
}

/// Text to the left of its position.
pub(super) fn before(size: i32) -> TextStyle<'static> {
    plain(size).pos(Pos::new(HPos::Right, VPos::Center))
}

/// Text below a point.
pub(super) fn label_below(area: &Area<'_>, (x, y): (i32, i32), name: &str) -> Drawn {
    let label = Text::new(name.to_owned(), (x, y + 8), centred(15, VPos::Top));
    Ok(area.draw(&label)?)
}

/// Least and greatest value of an axis that shows these values. Values that are not finite are left out.
pub(super) fn range(scale: Scale, values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values = values.filter(|value| value.is_finite() && *value > 0.0);
    let (least, greatest) = values.fold((f64::INFINITY, 0.0_f64), |(least, greatest), value| {
        (least.min(value), greatest.max(value))
    });
    match scale {
        Scale::Linear if greatest <= 0.0 => (0.0, 1.0),
        Scale::Log if greatest <= 0.0 => (0.1, 1.0),
        Scale::Linear => (0.0, greatest * 1.15),
        Scale::Log => ((least * 0.7).max(greatest * LOG_SHARE_MIN), greatest * 1.6),
    }
}

/// Values to name on a log axis: plotters begins at a power of ten and crowds all its multiples.
pub(super) fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor(), high.log10());
    let steps: &[f64] = if (high / low).log10() > LOG_DECADES_STEPPED {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    let powers = core::iter::successors(Some(first), |power| Some(power + 1.0));
    let powers = powers.take_while(|power| *power <= last);
    let values = powers.flat_map(|power| steps.iter().map(move |step| step * 10_f64.powf(power)));
    values
        .filter(|value| (low..=high).contains(value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_axis_names_one_two_and_five_of_each_decade_until_they_crowd() {
        assert_eq!(
            log_ticks(150.0, 7_000.0),
            [200.0, 500.0, 1_000.0, 2_000.0, 5_000.0]
        );
        assert_eq!(log_ticks(2.0, 30_000.0), [10.0, 100.0, 1_000.0, 10_000.0]);
    }

    #[test]
    fn an_axis_holds_its_values() {
        let (low, high) = range(Scale::Linear, [2.0, 4.0].into_iter());
        assert!(low == 0.0 && high > 4.0);
        let (low, high) = range(Scale::Log, [0.0, 0.02, 4.0, f64::NAN].into_iter());
        assert!(low > 0.0 && low < 0.02 && high > 4.0);
        for scale in [Scale::Linear, Scale::Log] {
            let (low, high) = range(scale, [0.0].into_iter());
            assert!(low < high);
        }
    }
}
