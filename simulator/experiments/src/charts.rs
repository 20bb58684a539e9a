//! Charts of rows, as the papers draw them.

use isotherm_report::chart::{
    Bar, BarGroup, Bars, BoxGroup, Boxes, Chart, Curve, CurveStyle, Lines, Plot, Quantiles,
};

use crate::figures::{ATTAINMENT, Figure};
use crate::rows::{Panel, Rows, Stat};

/// Share of requests within the SLO that charts mark.
pub(crate) const GOODPUT_SHARE: f64 = 0.9;

/// Draws rows: every chart shows the same systems in the same colours.
pub(crate) struct Charts<'a> {
    rows: &'a Rows,
    systems: &'a [&'a str],
}

impl<'a> Charts<'a> {
    pub(crate) fn new(rows: &'a Rows, systems: &'a [&'a str]) -> Self {
        Self { rows, systems }
    }

    /// Bars: groups side by side, in each a bar for every system, with the spread over the seeds.
    pub(crate) fn bars(&self, groups: &[&str], figure: Figure) -> Chart {
        let bar = |panel: Panel<'_>, system: &str| bar(panel.stat(system, figure));
        let groups = self.groups(groups, bar);
        let groups = groups.map(|(name, bars)| BarGroup { name, bars });
        let plot = Bars {
            groups: groups.collect(),
            reference: None,
            format: figure.format,
        };
        self.chart(figure.name, figure, Plot::Bars(plot))
    }

    /// Lines over the varied parameter, a chart for every figure: means over the seeds.
    pub(crate) fn lines(&self, group: &str, x_name: &str, figures: &[Figure]) -> Vec<Chart> {
        let xs = self.rows.xs(group);
        let points = |system: &str, figure| {
            let point = |&x| (x, self.rows.at(group, x).mean(system, figure));
            xs.iter().map(point).collect()
        };
        let chart = |&figure: &Figure| {
            let systems = self.systems.iter().enumerate();
            let lines = systems.map(|(series, system)| Curve {
                series,
                style: CurveStyle::Dotted,
                points: points(system, figure),
            });
            let plot = Lines {
                lines: lines.collect(),
                x_name: x_name.to_owned(),
                y_name: figure.unit.to_owned(),
                scale: figure.scale,
                reference: (figure.name == ATTAINMENT.name)
                    .then(|| (GOODPUT_SHARE, "90 %".to_owned())),
                ..Lines::default()
            };
            let title = format!("{group}: {}", figure.name);
            self.chart(&title, figure, Plot::Lines(plot))
        };
        figures.iter().map(chart).collect()
    }

    /// Boxes of times, as SkyLB's Figures 8 and 9: means of the quantiles over the seeds.
    pub(crate) fn boxes(&self, title: &str, groups: &[&str], times: [Figure; 6]) -> Chart {
        let [.., figure] = times;
        let quantiles = |panel: Panel<'_>, system: &str| {
            let [p10, p25, p50, p75, p90, mean] = times.map(|time| panel.mean(system, time));
            Quantiles {
                p10,
                p25,
                p50,
                p75,
                p90,
                mean,
            }
        };
        let groups = self.groups(groups, quantiles);
        let groups = groups.map(|(name, boxes)| BoxGroup { name, boxes });
        let plot = Boxes {
            groups: groups.collect(),
            y_name: figure.unit.to_owned(),
            scale: figure.scale,
        };
        self.chart(title, figure, Plot::Boxes(plot))
    }

    /// The name of each group, with a value for every system at the first x.
    fn groups<T>(
        &self,
        groups: &[&str],
        value: impl Fn(Panel<'_>, &str) -> T,
    ) -> impl Iterator<Item = (String, Vec<T>)> {
        groups.iter().map(move |group| {
            let x = self.rows.xs(group).first().copied().unwrap_or(0.0);
            let panel = self.rows.at(group, x);
            let values = self.systems.iter().map(|system| value(panel, system));
            ((*group).to_owned(), values.collect())
        })
    }

    fn chart(&self, title: &str, figure: Figure, plot: Plot) -> Chart {
        let caption = if figure.is_less_better {
            "Less is better."
        } else {
            "More is better."
        };
        Chart::new(title, caption, self.systems.iter().copied(), plot)
    }
}

/// A bar with the spread over the seeds.
pub(crate) fn bar(stat: Stat) -> Bar {
    Bar {
        value: stat.mean,
        spread: (stat.min < stat.max).then_some((stat.min, stat.max)),
    }
}
