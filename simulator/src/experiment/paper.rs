//! What the papers say, beside what we measure.
//!
//! Only numbers that a paper's text states are here, each with the place it is taken from. Its charts have no numbers
//! printed on them, and reading pixels would pretend to know more than we do.

use core::fmt;

use isotherm_report::number;
use serde::Serialize;

/// A number of a paper, or the range that it gives for several workloads or baselines.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stated {
    /// The least.
    pub low: f64,
    /// The greatest; the same where the paper has one number.
    pub high: f64,
    /// How it is read.
    pub unit: Unit,
    /// Where it stands.
    pub source: &'static str,
}

/// How a number is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A ratio of two figures.
    Times,
    /// A share of 1.
    Share,
}

impl Stated {
    /// One ratio.
    #[must_use]
    pub const fn times(value: f64, source: &'static str) -> Self {
        Self::range(value, value, Unit::Times, source)
    }

    /// One share.
    #[must_use]
    pub const fn share(value: f64, source: &'static str) -> Self {
        Self::range(value, value, Unit::Share, source)
    }

    /// From one to another.
    #[must_use]
    pub const fn range(low: f64, high: f64, unit: Unit, source: &'static str) -> Self {
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

impl fmt::Display for Stated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.low == self.high {
            f.write_str(&self.shown(self.low))
        } else {
            write!(f, "{} to {}", self.shown(self.low), self.shown(self.high))
        }
    }
}

/// The same figure of the paper and of this run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Against {
    /// Of what.
    pub what: String,
    /// The paper's.
    pub paper: Stated,
    /// Ours: the least and the greatest of what the paper's range is over; the mean over the seeds of each.
    pub ours: (f64, f64),
}

/// A tenth more or less counts as the same: seeds differ by that much.
const SAME_SHARE: f64 = 0.1;

impl Against {
    /// Of one figure.
    #[must_use]
    pub fn one(what: impl Into<String>, paper: Stated, ours: f64) -> Self {
        Self {
            what: what.into(),
            paper,
            ours: (ours, ours),
        }
    }

    /// Of several: over workloads or baselines, as the paper has it.
    #[must_use]
    pub fn over(what: impl Into<String>, paper: Stated, ours: &[f64]) -> Self {
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

    /// Ours, as text.
    #[must_use]
    pub fn ours_shown(&self) -> String {
        Stated {
            low: self.ours.0,
            high: self.ours.1,
            ..self.paper
        }
        .to_string()
    }

    /// Where ours lies, as a word: `as stated`, `above`, `below`, `wider`, `-`.
    #[must_use]
    pub fn place(&self) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;

    const GAIN: Stated = Stated::range(1.07, 1.18, Unit::Times, "SkyLB, Figure 10");

    #[test]
    fn ours_lies_somewhere() {
        let place = |ours: &[f64]| Against::over("gain", GAIN, ours).place();
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
    fn both_are_shown_in_the_same_unit() {
        assert_eq!(GAIN.to_string(), "1.07 × to 1.18 ×");
        assert_eq!(Against::one("gain", GAIN, 1.5).ours_shown(), "1.50 ×");
        let hits = Stated::share(0.8986, "SkyLB, Figure 9");
        assert_eq!(Against::one("hits", hits, 0.5).ours_shown(), "50.0 %");
    }
}
