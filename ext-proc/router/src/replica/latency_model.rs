//! The two lines that describe the speed of a pool.

use super::least_squares::LinearModel;

/// Ratios of an engine's speed to a model, as its counters show them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpeedRatios {
    pub(crate) prefill: Option<f64>,
    pub(crate) decode: Option<f64>,
}

/// Prefill and decode lines of a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LatencyModel {
    /// Time to first token, by the tokens computed before it.
    pub(crate) prefill: LinearModel,
    /// Time per output token, by the requests outstanding.
    pub(crate) decode: LinearModel,
}

impl Default for LatencyModel {
    fn default() -> Self {
        let line = |fixed_s, each_s| LinearModel { fixed_s, each_s };
        Self {
            prefill: line(0.03, 0.000_1),
            decode: line(0.02, 0.000_5),
        }
    }
}
