//! Charts of rows, as the papers draw them.

use isotherm_report::chart::{
    Bar, BarGroup, Bars, BoxGroup, Boxes, Chart, Curve, CurveStyle, Lines, Quantiles, Scale,
};
use isotherm_simulator::Summary;

use crate::figures::Figure;
use crate::rows::{Rows, Stat};

/// Draws rows: every chart shows the same systems in the same colours.
pub(crate) struct Charts<'a> {
    pub(crate) rows: &'a Rows,
    pub(crate) systems: &'a [&'a str],
}

/// Axes of lines over the varied parameter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Axes {
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) scale: Scale,
    /// A line across, with its name.
    pub(crate) reference: Option<(f64, &'static str)>,
}

impl Charts<'_> {
    /// Bars: groups side by side, in each a bar for every system, with the spread over the seeds.
    pub(crate) fn bars(
        &self,
        (title, caption): (&str, &str),
        groups: &[&str],
        figure: Figure,
        format: fn(f64) -> String,
    ) -> Chart {
        let bar = |group: &str, system: &str| {
            bar(self.rows.stat(group, system, self.first_x(group), figure))
        };
        let group = |group: &&str| BarGroup {
            name: (*group).to_owned(),
            bars: self
                .systems
                .iter()
                .map(|system| bar(group, system))
                .collect(),
        };
        let plot = Bars {
            groups: groups.iter().map(group).collect(),
            reference: None,
            format,
        };
        Chart::new(title, caption, plot).with_series(self.systems.iter().copied())
    }

    /// Lines over the varied parameter, one for every system: means over the seeds.
    pub(crate) fn lines(
        &self,
        (title, caption): (&str, &str),
        group: &str,
        axes: Axes,
        figure: impl Fn(&crate::rows::Row) -> f64 + Copy,
    ) -> Chart {
        let xs = self.rows.xs(group);
        let line = |(series, system): (usize, &&str)| Curve {
            series,
            style: CurveStyle::Dotted,
            points: xs
                .iter()
                .map(|&x| (x, self.rows.mean(group, system, x, figure)))
                .collect(),
        };
        let plot = Lines {
            lines: self.systems.iter().enumerate().map(line).collect(),
            x_name: axes.x.to_owned(),
            y_name: axes.y.to_owned(),
            scale: axes.scale,
            reference: axes.reference.map(|(value, name)| (value, name.to_owned())),
            ..Lines::default()
        };
        Chart::new(title, caption, plot).with_series(self.systems.iter().copied())
    }

    /// Boxes of times, as SkyLB's Figures 8 and 9: means of the quantiles over the seeds.
    pub(crate) fn boxes(
        &self,
        (title, caption): (&str, &str),
        groups: &[&str],
        scale: Scale,
        quantiles: fn(&Summary) -> Quantiles,
    ) -> Chart {
        let one = |group: &str, system: &str| {
            let x = self.first_x(group);
            let mean = |of: fn(&Quantiles) -> f64| {
                let figure = |row: &crate::rows::Row| of(&quantiles(&row.summary));
                self.rows.mean(group, system, x, figure)
            };
            Quantiles {
                p10: mean(|q| q.p10),
                p25: mean(|q| q.p25),
                p50: mean(|q| q.p50),
                p75: mean(|q| q.p75),
                p90: mean(|q| q.p90),
                mean: mean(|q| q.mean),
            }
        };
        let group = |group: &&str| BoxGroup {
            name: (*group).to_owned(),
            boxes: self
                .systems
                .iter()
                .map(|system| one(group, system))
                .collect(),
        };
        let plot = Boxes {
            groups: groups.iter().map(group).collect(),
            y_name: "seconds".to_owned(),
            scale,
        };
        Chart::new(title, caption, plot).with_series(self.systems.iter().copied())
    }

    fn first_x(&self, group: &str) -> f64 {
        self.rows.xs(group).first().copied().unwrap_or(0.0)
    }
}

/// A bar with the spread over the seeds.
pub(crate) fn bar(stat: Stat) -> Bar {
    Bar {
        value: stat.mean,
        spread: (stat.min < stat.max).then_some((stat.min, stat.max)),
    }
}

/// Quantiles of the time to the first token.
pub(crate) fn ttft(summary: &Summary) -> Quantiles {
    Quantiles {
        p10: summary.ttft_p10_s,
        p25: summary.ttft_p25_s,
        p50: summary.ttft_p50_s,
        p75: summary.ttft_p75_s,
        p90: summary.ttft_p90_s,
        mean: summary.ttft_mean_s,
    }
}

/// Quantiles of the time to the end of the response.
pub(crate) fn e2e(summary: &Summary) -> Quantiles {
    Quantiles {
        p10: summary.e2e_p10_s,
        p25: summary.e2e_p25_s,
        p50: summary.e2e_p50_s,
        p75: summary.e2e_p75_s,
        p90: summary.e2e_p90_s,
        mean: summary.e2e_mean_s,
    }
}
