//! What the best policy would save: the smallest fleet on which it serves this traffic at least as well as the baseline does on
//! the whole one.
//!
//! As well means: no more failures, no smaller share of requests within the objective, no higher 90th percentile of the time to
//! the first token, and at least 98 % of the throughput, so that a closed loop is not served "in time" by serving it less. The
//! search halves, since a smaller fleet is hardly ever better; whether the answer holds was seen in a run, never concluded.

use isotherm_router::PolicyName;
use serde::Serialize;

use super::{BASELINE, Plan, Who};
use crate::summary::Summary;

/// The least throughput, of the baseline's.
const THROUGHPUT_MIN: f64 = 0.98;

/// What a policy saves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Saving {
    /// The whole fleet.
    pub replicas: usize,
    /// The smallest that is as good.
    pub replicas_needed: usize,
    /// The part that is saved, 0 to 1.
    pub share: f64,
    /// The figures of the smallest one.
    pub summary: Summary,
}

impl Plan {
    /// What `policy` would save, next to the baseline with these figures. None if it is no better even on the whole fleet, or if the
    /// fleet cannot be cut.
    #[must_use]
    pub fn saving(&self, policy: PolicyName, baseline: &Summary) -> Option<Saving> {
        let whole = self.fleet.replicas();
        if policy == BASELINE || baseline.requests == baseline.failed {
            return None;
        }
        let regions = self.fleet.regions().len();
        // Every region keeps a replica.
        let (mut too_few, mut enough) = (regions.saturating_sub(1), whole + 1);
        let mut found = None;
        while too_few + 1 < enough {
            let replicas = too_few.midpoint(enough);
            let summary = self.summary(Who::Policy(policy), &self.fleet.of(replicas)?);
            if as_good(&summary, baseline) {
                enough = replicas;
                found = Some(summary);
            } else {
                too_few = replicas;
            }
        }
        let summary = found?;
        Some(Saving {
            replicas: whole,
            replicas_needed: enough,
            share: 1.0 - enough as f64 / whole.max(1) as f64,
            summary,
        })
    }
}

fn as_good(summary: &Summary, baseline: &Summary) -> bool {
    summary.failed <= baseline.failed
        && summary.slo_attainment >= baseline.slo_attainment
        && summary.ttft_p90_s <= baseline.ttft_p90_s
        && summary.throughput_tokens_per_s >= THROUGHPUT_MIN * baseline.throughput_tokens_per_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_good_is_as_good_in_everything() {
        let baseline = Summary {
            requests: 100,
            failed: 1,
            slo_attainment: 0.9,
            ttft_p90_s: 4.0,
            throughput_tokens_per_s: 1_000.0,
            ..Summary::default()
        };
        assert!(as_good(&baseline, &baseline));
        let worse: [fn(&mut Summary); 4] = [
            |summary| summary.failed = 2,
            |summary| summary.slo_attainment = 0.89,
            |summary| summary.ttft_p90_s = 4.1,
            |summary| summary.throughput_tokens_per_s = 970.0,
        ];
        for change in worse {
            let mut summary = baseline.clone();
            change(&mut summary);
            assert!(!as_good(&summary, &baseline), "{summary:?}");
        }
    }
}
