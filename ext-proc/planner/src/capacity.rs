//! Input tokens a second that one replica serves, for the paper's signal: learned from minutes that met the objective.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::DemandSums;

/// Minutes that are kept: a day.
const MINUTES_MAX: usize = 1_440;
/// Minutes that an estimate needs.
const MINUTES_MIN: usize = 30;
/// Share of a minute's requests that must meet the objective.
const IN_SLO_MIN: f64 = 0.95;
/// Share of the good minutes below the estimate: a replica serves more than in most of them, and as much as in the busiest.
const QUANTILE: f64 = 0.95;

/// Learned throughput of a replica.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Capacity {
    /// Input tokens a second and replica in good minutes, oldest first.
    tokens_per_s: VecDeque<f64>,
    /// Last minute that was read.
    minute: u64,
}

impl Capacity {
    /// Reads a minute once, with the replicas that served in it.
    pub(crate) fn read(&mut self, minute: u64, sums: &DemandSums, ready: u32) {
        if minute <= self.minute || ready == 0 {
            return;
        }
        self.minute = minute;
        if sums.requests < 1.0 || sums.requests_in_slo < IN_SLO_MIN * sums.requests {
            return;
        }
        if self.tokens_per_s.len() >= MINUTES_MAX {
            self.tokens_per_s.pop_front();
        }
        self.tokens_per_s
            .push_back(sums.input_tokens / 60.0 / f64::from(ready));
    }

    /// Input tokens a second that one replica serves.
    pub(crate) fn estimate(&self) -> Option<f64> {
        if self.tokens_per_s.len() < MINUTES_MIN {
            return None;
        }
        let mut sorted: Vec<f64> = self.tokens_per_s.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let at = ((sorted.len() as f64 * QUANTILE).ceil() as usize).saturating_sub(1);
        sorted.get(at).copied().filter(|tokens| *tokens > 0.0)
    }

    /// State within its bounds.
    pub(crate) fn sanitized(mut self) -> Self {
        self.tokens_per_s
            .retain(|tokens| tokens.is_finite() && *tokens >= 0.0);
        self.tokens_per_s.truncate(MINUTES_MAX);
        self
    }
}
