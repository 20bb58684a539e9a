//! Figures that the papers state, beside the measured ones.
//!
//! Every number is from a paper's text, with its source: a number read off a chart would pretend to a precision that it lacks.

use core::fmt;

use isotherm_report::{Table, number};
use serde::Serialize;

/// A number of a paper, or the range that it gives for several workloads or baselines.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct PaperFigure {
    low: f64,
    /// Upper end of the range; equals `low` for a single number.
    high: f64,
    unit: Unit,
    source: &'static str,
}

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// A ratio of two figures.
    Times,
    /// A share, from 0 to 1.
    Share,
}

impl fmt::Display for PaperFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = match self.unit {
            Unit::Times => number::times,
            Unit::Share => number::percent,
        };
        if self.low == self.high {
            f.write_str(&shown(self.low))
        } else {
            write!(f, "{} to {}", shown(self.low), shown(self.high))
        }
    }
}

/// A figure of the paper and the same figure of this run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PaperComparison {
    pub(crate) what: String,
    pub(crate) paper: PaperFigure,
    /// Least and greatest measured value over the workloads or baselines of the paper's range; each a mean over the seeds.
    pub(crate) ours: (f64, f64),
    /// Explanation of the difference; empty where nothing needs to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) because: String,
}

/// Relative difference that counts as equal: seeds differ by that much.
const SAME_SHARE: f64 = 0.1;

/// Section of a paper that states figures.
#[derive(Clone, Copy)]
pub(crate) struct Source(pub(crate) &'static str);

impl Source {
    /// Compares ratios with a range of the paper.
    pub(crate) fn times(
        self,
        what: impl Into<String>,
        range: (f64, f64),
        ours: &[f64],
    ) -> PaperComparison {
        self.compare(what.into(), range, Unit::Times, ours)
    }

    /// Compares shares with a range of the paper.
    pub(crate) fn share(
        self,
        what: impl Into<String>,
        range: (f64, f64),
        ours: &[f64],
    ) -> PaperComparison {
        self.compare(what.into(), range, Unit::Share, ours)
    }

    /// Compares figures, over workloads or baselines, with a range of the paper.
    pub(crate) fn compare(
        self,
        what: String,
        (low, high): (f64, f64),
        unit: Unit,
        ours: &[f64],
    ) -> PaperComparison {
        let Self(source) = self;
        let finite = || ours.iter().copied().filter(|value| value.is_finite());
        PaperComparison {
            what,
            paper: PaperFigure {
                low,
                high,
                unit,
                source,
            },
            ours: (
                finite().fold(f64::NAN, f64::min),
                finite().fold(f64::NAN, f64::max),
            ),
            because: String::new(),
        }
    }
}

impl PaperComparison {
    /// Adds what explains the difference.
    pub(crate) fn because(mut self, reason: impl Into<String>) -> Self {
        self.because = reason.into();
        self
    }

    fn ours_text(&self) -> String {
        let (low, high) = self.ours;
        PaperFigure {
            low,
            high,
            ..self.paper
        }
        .to_string()
    }

    /// Relation of the measured range to the paper's.
    fn relation(&self) -> &'static str {
        let (low, high) = self.ours;
        let least = self.paper.low * (1.0 - SAME_SHARE);
        let most = self.paper.high * (1.0 + SAME_SHARE);
        match (low < least, high > most) {
            _ if low.is_nan() => "-",
            _ if high < least => "below",
            _ if low > most => "above",
            (true, true) => "wider",
            (true, false) => "partly below",
            (false, true) => "partly above",
            (false, false) => "as stated",
        }
    }
}

/// The comparisons as a table. The headline leaves out where the paper states a figure, and why this run differs.
pub(crate) fn table(comparisons: &[PaperComparison]) -> Table {
    let has_reasons = comparisons.iter().any(|one| !one.because.is_empty());
    let columns = ["figure", "paper", "measured", "measured is", "source"];
    let reason = has_reasons.then_some("difference");
    let table =
        Table::new(columns.into_iter().chain(reason)).with_rows(comparisons.iter().map(|one| {
            let cells = [
                one.what.clone(),
                one.paper.to_string(),
                one.ours_text(),
                one.relation().to_owned(),
                one.paper.source.to_owned(),
            ];
            let reason = has_reasons.then(|| one.because.clone());
            cells.into_iter().chain(reason)
        }));
    table.headline(&columns[..4], |_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURE_10: Source = Source("SkyLB, Figure 10");

    fn gain(ours: &[f64]) -> PaperComparison {
        FIGURE_10.times("gain", (1.07, 1.18), ours)
    }

    #[test]
    fn the_measured_range_has_a_relation_to_the_papers() {
        for (ours, relation) in [
            (&[1.1][..], "as stated"),
            (&[1.0, 1.25], "as stated"),
            (&[0.8, 1.4], "wider"),
            (&[0.8, 0.9], "below"),
            (&[0.9, 1.1], "partly below"),
            (&[1.1, 1.5], "partly above"),
            (&[1.4], "above"),
            (&[f64::NAN], "-"),
        ] {
            assert_eq!(gain(ours).relation(), relation);
        }
    }

    #[test]
    fn paper_and_measured_figures_share_a_unit() {
        let gain = gain(&[1.5]);
        assert_eq!(gain.paper.to_string(), "1.07 × to 1.18 ×");
        assert_eq!(gain.ours_text(), "1.50 ×");
        let hits = FIGURE_10.share("hits", (0.8986, 0.8986), &[0.5]);
        assert_eq!(hits.ours_text(), "50.0 %");
    }
}
