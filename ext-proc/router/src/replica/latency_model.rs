//! The two lines that describe the speed of an engine.

use super::least_squares::LinearModel;

/// Presumed prefill line, by uncached tokens.
const PREFILL: LinearModel = LinearModel {
    fixed_s: 0.03,
    each_s: 0.000_1,
};
/// Presumed decode line, by outstanding requests.
const DECODE: LinearModel = LinearModel {
    fixed_s: 0.02,
    each_s: 0.000_5,
};
/// Bounds of the time per prompt token, in seconds: noise can push a fitted line beyond them.
const TOKEN_S: core::ops::RangeInclusive<f64> = 2e-6..=2e-2;

/// Prefill and decode lines of a replica or a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LatencyModel {
    /// Time to first token, by the tokens computed before it.
    pub(crate) prefill: LinearModel,
    /// Time per output token, by the requests outstanding.
    pub(crate) decode: LinearModel,
}

impl LatencyModel {
    /// The lower bound of two models.
    pub(crate) const fn least(self, other: Self) -> Self {
        Self {
            prefill: self.prefill.least(other.prefill),
            decode: self.decode.least(other.decode),
        }
    }

    /// The model with a time per prompt token within its bounds.
    pub(crate) fn bounded(self) -> Self {
        let each_s = self.prefill.each_s.clamp(*TOKEN_S.start(), *TOKEN_S.end());
        Self {
            prefill: LinearModel {
                each_s,
                ..self.prefill
            },
            ..self
        }
    }
}

impl Default for LatencyModel {
    fn default() -> Self {
        Self {
            prefill: PREFILL,
            decode: DECODE,
        }
    }
}

/// Ratios of an engine's speed to a model, as its counters show them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpeedRatios {
    pub(crate) prefill: Option<f64>,
    pub(crate) decode: Option<f64>,
}
