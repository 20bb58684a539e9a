//! Figures that the papers state, beside the measured ones.
//!
//! Every number is from a paper's text, with its source. Numbers read off the pixels of a chart were rejected: they would
//! pretend to a precision that they do not have.

use core::fmt;

use isotherm_report::{Table, number};
use serde::Serialize;

/// A number of a paper, or the range that it gives for several workloads or baselines.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct PaperFigure {
    pub(crate) low: f64,
    /// Upper end of the range; equals `low` for a single number.
    pub(crate) high: f64,
    pub(crate) unit: Unit,
    pub(crate) source: &'static str,
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

impl PaperFigure {
    pub(crate) const fn times(value: f64, source: &'static str) -> Self {
        Self::range(value, value, Unit::Times, source)
    }

    pub(crate) const fn share(value: f64, source: &'static str) -> Self {
        Self::range(value, value, Unit::Share, source)
    }

    pub(crate) const fn range(low: f64, high: f64, unit: Unit, source: &'static str) -> Self {
        Self {
            low,
            high,
            unit,
            source,
        }
    }

    fn shown(&self, value: f64) -> String {
        match self.unit {
            Unit::Times => number::times(value),
            Unit::Share => number::percent(value),
        }
    }
}

impl fmt::Display for PaperFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.low == self.high {
            f.write_str(&self.shown(self.low))
        } else {
            write!(f, "{} to {}", self.shown(self.low), self.shown(self.high))
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
}

/// Relative difference that counts as equal: seeds differ by that much.
const SAME_SHARE: f64 = 0.1;

impl PaperComparison {
    /// Compares a single value.
    pub(crate) fn one(what: impl Into<String>, paper: PaperFigure, ours: f64) -> Self {
        Self {
            what: what.into(),
            paper,
            ours: (ours, ours),
        }
    }

    /// Compares several values, over workloads or baselines.
    pub(crate) fn over(what: impl Into<String>, paper: PaperFigure, ours: &[f64]) -> Self {
        let finite = || ours.iter().copied().filter(|value| value.is_finite());
        Self {
            what: what.into(),
            paper,
            ours: (
                finite().fold(f64::NAN, f64::min),
                finite().fold(f64::NAN, f64::max),
            ),
        }
    }

    pub(crate) fn ours_text(&self) -> String {
        PaperFigure {
            low: self.ours.0,
            high: self.ours.1,
            ..self.paper
        }
        .to_string()
    }

    /// Relation of the measured range to the paper's: `as stated`, `above`, `below`, `wider`, `-`.
    pub(crate) fn relation(&self) -> &'static str {
        let (low, high) = self.ours;
        let under = low < self.paper.low * (1.0 - SAME_SHARE);
        let over = high > self.paper.high * (1.0 + SAME_SHARE);
        let apart_below = high < self.paper.low * (1.0 - SAME_SHARE);
        let apart_above = low > self.paper.high * (1.0 + SAME_SHARE);
        if !low.is_finite() || !high.is_finite() {
            "-"
        } else if apart_below {
            "below"
        } else if apart_above {
            "above"
        } else if under && over {
            "wider"
        } else if under {
            "partly below"
        } else if over {
            "partly above"
        } else {
            "as stated"
        }
    }
}

/// The comparisons as a table.
pub(crate) fn table(comparisons: &[PaperComparison]) -> Table {
    let columns = ["figure", "paper", "measured", "measured is", "source"];
    Table::new(columns).with_rows(comparisons.iter().map(|one| {
        [
            one.what.clone(),
            one.paper.to_string(),
            one.ours_text(),
            one.relation().to_owned(),
            one.paper.source.to_owned(),
        ]
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAIN: PaperFigure = PaperFigure::range(1.07, 1.18, Unit::Times, "SkyLB, Figure 10");

    #[test]
    fn the_measured_range_has_a_relation_to_the_papers() {
        let place = |ours: &[f64]| PaperComparison::over("gain", GAIN, ours).relation();
        assert_eq!(place(&[1.1]), "as stated");
        assert_eq!(place(&[1.0, 1.25]), "as stated");
        assert_eq!(place(&[0.8, 1.4]), "wider");
        assert_eq!(place(&[0.8, 0.9]), "below");
        assert_eq!(place(&[0.9, 1.1]), "partly below");
        assert_eq!(place(&[1.1, 1.5]), "partly above");
        assert_eq!(place(&[1.4]), "above");
        assert_eq!(place(&[f64::NAN]), "-");
    }

    #[test]
    fn paper_and_measured_figures_share_a_unit() {
        assert_eq!(GAIN.to_string(), "1.07 × to 1.18 ×");
        assert_eq!(
            PaperComparison::one("gain", GAIN, 1.5).ours_text(),
            "1.50 ×"
        );
        let hits = PaperFigure::share(0.8986, "SkyLB, Figure 9");
        assert_eq!(
            PaperComparison::one("hits", hits, 0.5).ours_text(),
            "50.0 %"
        );
    }
}
