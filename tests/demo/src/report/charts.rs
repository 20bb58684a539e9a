//! The charts of a comparison: the distribution of the time to first token, the cache hits over the run, and the load of each
//! replica under each policy.

use isotherm_report::chart::{Band, Bands, Chart, Curve, CurveStyle, Lines, Plot, Scale};
use isotherm_report::number::whole;
use isotherm_report::palette::css;

use super::{Comparison, Run};

/// Width of a chart in the picture.
const PICTURE_WIDTH: u32 = 520;
/// Height of a chart in the picture.
const PICTURE_HEIGHT: u32 = 300;
/// Height of a title in the picture.
const TITLE_HEIGHT: u32 = 30;
/// Height of the axis below bands.
const BANDS_AXIS_HEIGHT: u32 = 64;
/// Most pixels for the band of a replica.
const BAND_HEIGHT_MAX: u32 = 34;
/// Most pixels for all bands of a chart.
const BANDS_HEIGHT_MAX: u32 = 400;

impl Comparison {
    pub(crate) fn charts(&self) -> Vec<Chart> {
        vec![self.ttft_chart(), self.hit_chart()]
    }

    /// A chart for each run with one band for each replica, all on one scale.
    pub(super) fn load_charts(&self) -> Vec<Chart> {
        let points = || {
            self.runs
                .iter()
                .flat_map(|run| run.curves.load.iter().flatten())
        };
        let x_max = points().map(|(at, _)| *at).fold(0.0, f64::max);
        let y_max = points().map(|(_, outstanding)| *outstanding).max();
        let y_max = y_max.unwrap_or(0) as f64;
        let runs = self.runs.iter().enumerate();
        let runs = runs.filter(|(_, run)| !run.curves.load.is_empty());
        runs.map(|(series, run)| load_chart(run, series, x_max, y_max))
            .collect()
    }

    /// The charts with their titles and a legend as one SVG picture.
    ///
    /// # Errors
    /// When a chart cannot be drawn.
    pub fn picture(&self) -> anyhow::Result<String> {
        let mut body = String::new();
        for (index, run) in self.runs.iter().enumerate() {
            let (x, colour, label) = (20 + 200 * index, css(index), run.label());
            body += &format!(
                "<rect x=\"{x}\" y=\"10\" width=\"14\" height=\"14\" fill=\"{colour}\"/>\
                 <text x=\"{}\" y=\"22\">{label}</text>",
                x + 20
            );
        }
        let charts = self.charts();
        for (x, chart) in (0..).step_by(PICTURE_WIDTH as usize).zip(&charts) {
            let size = (PICTURE_WIDTH, PICTURE_HEIGHT);
            let svg = Chart {
                size,
                ..chart.clone()
            }
            .svg()?;
            let place = format!("<svg x=\"{x}\" y=\"{}\" ", 2 * TITLE_HEIGHT);
            let svg = svg.replacen("<svg ", &place, 1);
            body += &format!(
                "<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>{svg}",
                x + 20,
                TITLE_HEIGHT + 22,
                chart.title
            );
        }
        let width = PICTURE_WIDTH * u32::try_from(charts.len())?;
        let height = PICTURE_HEIGHT + 2 * TITLE_HEIGHT;
        Ok(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
             font-size=\"15\"><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>{body}</svg>\n"
        ))
    }

    fn ttft_chart(&self) -> Chart {
        let curve = |run: &Run| {
            let quantiles = &run.curves.ttft_ms;
            let last = quantiles.len().saturating_sub(1).max(1) as f64;
            let quantiles = quantiles.iter().enumerate();
            quantiles
                .map(|(index, ms)| (*ms, index as f64 / last))
                .collect()
        };
        let ticks = [(0.0, "0"), (0.5, "p50"), (0.9, "p90"), (0.99, "p99")];
        let plot = Lines {
            lines: self.curves(curve),
            x_name: "ms".to_owned(),
            y_name: "share of the requests".to_owned(),
            x_scale: Scale::Log,
            y_max: Some(1.0),
            y_ticks: ticks.map(|(share, name)| (share, name.to_owned())).into(),
        };
        self.chart(
            "Time to first token",
            "Share of the requests whose first token came within so many milliseconds. Further left is better.",
            plot,
        )
    }

    fn hit_chart(&self) -> Chart {
        let curve = |run: &Run| {
            let points = run.curves.hit_ratio.iter();
            points.map(|(at, ratio)| (*at, ratio * 100.0)).collect()
        };
        let ticks = [0.0, 25.0, 50.0, 75.0, 100.0];
        let plot = Lines {
            lines: self.curves(curve),
            x_name: "seconds".to_owned(),
            y_name: "% of the prompt tokens".to_owned(),
            y_max: Some(100.0),
            y_ticks: ticks.map(|share| (share, whole(share))).into(),
            ..Lines::default()
        };
        self.chart(
            "Cache hits over the run",
            "Share of the prompt tokens that the engines found in their KV caches. Higher is better.",
            plot,
        )
    }

    fn curves(&self, points: impl Fn(&Run) -> Vec<(f64, f64)>) -> Vec<Curve> {
        // The first run is in front of the others.
        let runs = self.runs.iter().enumerate().rev();
        let curve = |(series, run)| Curve {
            series,
            points: points(run),
            style: CurveStyle::Plain,
        };
        runs.map(curve).collect()
    }

    fn chart(&self, title: &str, caption: &str, plot: Lines) -> Chart {
        let names = self.runs.iter().map(Run::label);
        Chart::new(title, caption, names, Plot::Lines(plot))
    }
}

fn load_chart(run: &Run, series: usize, x_max: f64, y_max: f64) -> Chart {
    let bands = (1..).zip(&run.curves.load).map(|(number, points)| Band {
        name: format!("{number}"),
        points: points
            .iter()
            .map(|(at, load)| (*at, *load as f64))
            .collect(),
    });
    let plot = Bands {
        bands: bands.collect(),
        series,
        x_name: "seconds".to_owned(),
        x_max,
        y_max,
    };
    let replicas = u32::try_from(plot.bands.len()).unwrap_or(u32::MAX);
    let height = replicas
        .saturating_mul(BAND_HEIGHT_MAX)
        .min(BANDS_HEIGHT_MAX);
    let caption = format!(
        "Each band is a replica: its outstanding requests. A full band is {y_max} of them."
    );
    let names: [String; 0] = [];
    Chart {
        size: (PICTURE_WIDTH, height + BANDS_AXIS_HEIGHT),
        ..Chart::new(run.label(), caption, names, Plot::Bands(plot))
    }
}

#[cfg(test)]
mod tests {
    use crate::report::tests::example;

    #[test]
    fn the_picture_has_a_legend_and_the_charts_side_by_side() {
        let picture = example().picture().unwrap();
        assert_eq!(picture.matches("<svg").count(), 3);
        assert!(picture.contains("viewBox=\"0 0 1040 360\""));
        for text in ["Prefix tree", "Round robin", "Time to first token", "p90"] {
            assert!(picture.contains(text), "no {text}");
        }
    }

    #[test]
    fn the_loads_of_all_policies_are_on_one_scale() {
        let mut comparison = example();
        comparison.runs[1].curves.load[3][1] = (30.0, 9);
        let charts = comparison.load_charts();
        let titles: Vec<_> = charts.iter().map(|chart| chart.title.as_str()).collect();
        assert_eq!(titles, ["Prefix tree", "Round robin"]);
        for chart in charts {
            assert!(
                chart.caption.contains("A full band is 9"),
                "{}",
                chart.caption
            );
        }
    }
}
