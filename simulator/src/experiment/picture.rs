//! Charts of rows, as the papers draw them.

use isotherm_report::chart::{
    Bar, BarGroup, Bars, BoxGroup, Boxes, Chart, Curve, CurveStyle, Lines, Quantiles, Scale,
};

use super::rows::{Row, Rows};
use crate::summary::Summary;

/// A figure of a run.
pub type Figure = fn(&Row) -> f64;

/// Bars: groups side by side, in each a bar for every system, with the spread over the seeds.
///
/// # Errors
/// When it cannot be drawn.
pub fn bars(
    (title, explanation): (&str, &str),
    rows: &Rows,
    (groups, systems): (&[&str], &[&str]),
    (figure, format): (Figure, fn(f64) -> String),
) -> anyhow::Result<Chart> {
    let bar = |group: &str, system: &str| {
        let x = rows.xs(group).first().copied().unwrap_or(0.0);
        let stat = rows.stat(group, system, x, figure);
        Bar {
            value: stat.mean,
            spread: (stat.min < stat.max).then_some((stat.min, stat.max)),
        }
    };
    let chart = Bars {
        groups: groups
            .iter()
            .map(|group| BarGroup {
                name: (*group).to_owned(),
                bars: systems.iter().map(|system| bar(group, system)).collect(),
            })
            .collect(),
        reference: None,
        format,
    };
    Ok(Chart::new(title, explanation, chart).with_series(systems.iter().copied()))
}

/// Lines over the figure that was turned, one for every system; means over the seeds.
///
/// # Errors
/// When it cannot be drawn.
pub fn lines(
    (title, explanation): (&str, &str),
    rows: &Rows,
    (group, systems): (&str, &[&str]),
    axes: &Axes,
    figure: Figure,
) -> anyhow::Result<Chart> {
    let line = |(series, system): (usize, &&str)| Curve {
        series,
        style: CurveStyle::Dotted,
        points: rows
            .xs(group)
            .into_iter()
            .map(|x| (x, rows.mean(group, system, x, figure)))
            .collect(),
    };
    let chart = Lines {
        lines: systems.iter().enumerate().map(line).collect(),
        x_name: axes.x.to_owned(),
        y_name: axes.y.to_owned(),
        scale: axes.scale,
        reference: axes.mark.map(|(value, name)| (value, name.to_owned())),
        ..Lines::default()
    };
    Ok(Chart::new(title, explanation, chart).with_series(systems.iter().copied()))
}

/// The axes of lines.
#[derive(Clone, Copy, Debug, Default)]
pub struct Axes {
    /// Below.
    pub x: &'static str,
    /// Beside.
    pub y: &'static str,
    /// How the vertical one is divided.
    pub scale: Scale,
    /// A line across.
    pub mark: Option<(f64, &'static str)>,
}

/// Boxes of times, as SkyLB's Figures 8 and 9: means of the quantiles over the seeds.
///
/// # Errors
/// When it cannot be drawn.
pub fn boxes(
    (title, explanation): (&str, &str),
    rows: &Rows,
    (groups, systems): (&[&str], &[&str]),
    (scale, quantiles): (Scale, fn(&Summary) -> Quantiles),
) -> anyhow::Result<Chart> {
    let one = |group: &str, system: &str| {
        let x = rows.xs(group).first().copied().unwrap_or(0.0);
        let mean = |of: fn(&Quantiles) -> f64| {
            rows.mean(group, system, x, |row| of(&quantiles(&row.summary)))
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
    let chart = Boxes {
        groups: groups
            .iter()
            .map(|group| BoxGroup {
                name: (*group).to_owned(),
                boxes: systems.iter().map(|system| one(group, system)).collect(),
            })
            .collect(),
        y_name: "seconds".to_owned(),
        scale,
    };
    Ok(Chart::new(title, explanation, chart).with_series(systems.iter().copied()))
}

/// Of the times to the first token.
#[must_use]
pub fn ttft(summary: &Summary) -> Quantiles {
    Quantiles {
        p10: summary.ttft_p10_s,
        p25: summary.ttft_p25_s,
        p50: summary.ttft_p50_s,
        p75: summary.ttft_p75_s,
        p90: summary.ttft_p90_s,
        mean: summary.ttft_mean_s,
    }
}

/// Of the times to the end of the answer.
#[must_use]
pub fn e2e(summary: &Summary) -> Quantiles {
    Quantiles {
        p10: summary.e2e_p10_s,
        p25: summary.e2e_p25_s,
        p50: summary.e2e_p50_s,
        p75: summary.e2e_p75_s,
        p90: summary.e2e_p90_s,
        mean: summary.e2e_mean_s,
    }
}
