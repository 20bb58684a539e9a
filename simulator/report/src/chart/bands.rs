//! Bands: one filled curve above the other over the same time, all on one scale, as of the replicas of a run.

use plotters::prelude::*;
use serde::Serialize;

use super::frame::{Area, Drawn, before, plain, svg};
use crate::number::tick;
use crate::palette::{GREY, pick};

/// Share of a band's height that its greatest value fills.
const FILLED_SHARE: f64 = 0.9;

/// A band.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Band {
    /// Name to the left of the band.
    pub name: String,
    /// Points from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A plot of bands.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Bands {
    /// Bands from top to bottom.
    pub bands: Vec<Band>,
    /// Index of the series, which gives the colour.
    pub series: usize,
    /// Name of the horizontal axis.
    pub x_name: String,
    /// Greatest value of the horizontal axis; makes several plots comparable.
    pub x_max: f64,
    /// Value that fills a band; makes several plots comparable.
    pub y_max: f64,
}

impl Bands {
    pub(super) fn svg(&self, size: (u32, u32)) -> anyhow::Result<String> {
        svg(size, |area| self.draw(area))
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        let (right, top) = (self.x_max.max(1e-3), self.bands.len().max(1) as f64);
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..right, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .y_labels(0)
            .axis_style(GREY)
            .x_desc(self.x_name.as_str())
            .x_label_formatter(&|value| tick(*value))
            .label_style(plain(13))
            .axis_desc_style(plain(13))
            .draw()?;
        let colour = pick(self.series);
        for (index, band) in self.bands.iter().enumerate() {
            let base = top - 1.0 - index as f64;
            let height = |value: f64| base + FILLED_SHARE * (value / self.y_max.max(1e-9)).min(1.0);
            let points = band.points.iter().map(|(x, y)| (*x, height(*y)));
            let ends = band.points.first().zip(band.points.last());
            let ends = ends.map(|(first, last)| [(last.0, base), (first.0, base)]);
            let outline: Vec<_> = points.chain(ends.into_iter().flatten()).collect();
            chart.draw_series([Polygon::new(outline, colour.mix(0.75).filled())])?;
            let line = [(0.0, base), (right, base)];
            chart.draw_series([PathElement::new(line, GREY.mix(0.3))])?;
            let (x, y) = chart.backend_coord(&(0.0, base + 0.5));
            area.draw(&Text::new(band.name.clone(), (x - 6, y), before(13)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::count;
    use super::*;

    #[test]
    fn each_band_has_its_name_and_its_area() {
        let band = |name: &str, points: &[(f64, f64)]| Band {
            name: name.into(),
            points: points.into(),
        };
        let bands = Bands {
            bands: vec![
                band("8001", &[(0.0, 1.0), (1.0, 4.0), (2.0, 9.0)]),
                band("8002", &[(0.0, 1.0), (2.0, 2.0)]),
            ],
            series: 1,
            x_name: "seconds".into(),
            x_max: 2.0,
            y_max: 4.0,
        };
        let svg = bands.svg((400, 120)).unwrap();
        assert_eq!(count(&svg, "polygon"), 2);
        assert!(svg.contains("8001") && svg.contains("8002") && svg.contains("seconds"));
    }

    #[test]
    fn a_plot_without_bands_is_an_empty_chart() {
        let svg = Bands::default().svg((400, 120)).unwrap();
        assert_eq!(count(&svg, "polygon"), 0);
    }
}
