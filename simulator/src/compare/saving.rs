//! Replicas that the best policy would save, in the first of two forms that applies:
//!
//! - the smallest fleet on which it serves this traffic at least as well as the baseline does on the whole one
//! - where the baseline is overloaded, no smaller fleet is as good: then how many replicas the baseline would need to be as good
//!   as the policy on the whole one
//!
//! As well means: no more failures, no smaller share of requests within the objective, no higher 90th percentile of the time to
//! first token, and at least 98 % of the throughput: a closed loop must not be "in time" by serving it less. The searches halve,
//! since a smaller fleet is hardly ever better; a run confirms every answer.

use isotherm_policies::PolicyName;
use serde::Serialize;

use super::{BASELINE, Comparison, Plan, System};
use crate::summary::Summary;

/// The least throughput, of the other's.
const THROUGHPUT_MIN: f64 = 0.98;
/// The baseline is not given more than so many times the fleet.
const GROWTH_MAX: usize = 3;

/// Replicas that a policy saves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Savings {
    /// Replicas that the policy needs.
    pub replicas: usize,
    /// Replicas that the baseline needs for as much; none if even [`Self::tried`] are too few.
    pub baseline_replicas: Option<usize>,
    /// The most that the baseline was given.
    pub tried: usize,
    /// The policy's figures on its replicas.
    pub policy: Summary,
    /// The baseline's on its own, or on the most that it was given.
    pub baseline: Summary,
}

impl Savings {
    /// The part of the replicas that is saved, at least; 0 to 1.
    pub fn share(&self) -> f64 {
        let without = self.baseline_replicas.unwrap_or(self.tried).max(1);
        1.0 - self.replicas as f64 / without as f64
    }
}

impl Plan {
    /// Replicas that the best policy would save against the baseline. `None` when the policy is no better even on the whole fleet,
    /// or if the fleet cannot be cut.
    pub fn saving(&self, comparison: &Comparison) -> Option<Savings> {
        let policy = comparison.best?;
        let summary = comparison.of(System::Policy(policy))?;
        let baseline = comparison.of(System::Policy(BASELINE))?;
        let whole = self.fleet.replicas();
        if policy == BASELINE || !as_good(summary, baseline) || self.fleet.of(whole).is_none() {
            return None;
        }
        // Every region keeps a replica.
        let least = self.fleet.regions().len().max(1);
        let as_good_as = |policy, other| {
            move |replicas| {
                self.with(policy, replicas)
                    .filter(|seen| as_good(seen, other))
            }
        };
        let fewer = smallest(least, whole, as_good_as(policy, baseline));
        if let Some((replicas, policy)) = fewer {
            return Some(Savings {
                replicas,
                baseline_replicas: Some(whole),
                tried: whole,
                policy,
                baseline: baseline.clone(),
            });
        }
        if as_good(baseline, summary) {
            return None;
        }
        let tried = whole * GROWTH_MAX;
        let most = self.with(BASELINE, tried)?;
        let more = as_good(&most, summary).then(|| {
            let fewer = smallest(whole + 1, tried, as_good_as(BASELINE, summary));
            fewer.unwrap_or_else(|| (tried, most.clone()))
        });
        Some(Savings {
            replicas: whole,
            baseline_replicas: more.as_ref().map(|(replicas, _)| *replicas),
            tried,
            policy: summary.clone(),
            baseline: more.map_or(most, |(_, seen)| seen),
        })
    }

    fn with(&self, policy: PolicyName, replicas: usize) -> Option<Summary> {
        let fleet = self.fleet.of(replicas)?;
        let outcome = self.outcome(System::Policy(policy), &fleet);
        // A fleet so slow that its run was cut is not as good as any.
        (!outcome.reached_limit).then(|| outcome.summary(self.slo))
    }
}

/// The smallest number from `least` to below `most` for which `found` finds something, if it does so for all greater ones.
fn smallest<T>(
    least: usize,
    most: usize,
    found: impl Fn(usize) -> Option<T>,
) -> Option<(usize, T)> {
    let (mut low, mut high, mut best) = (least, most, None);
    while low < high {
        let middle = low.midpoint(high);
        match found(middle) {
            Some(seen) => {
                best = Some((middle, seen));
                high = middle;
            }
            None => low = middle + 1,
        }
    }
    best
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
    fn the_smallest_is_found() {
        for wanted in 1..8 {
            let found = |number| (number >= wanted).then_some(());
            assert_eq!(smallest(1, 8, found), Some((wanted, ())));
        }
        assert_eq!(smallest(1, 8, |_| None::<()>), None);
        assert_eq!(smallest(8, 8, Some), None);
    }

    #[test]
    fn a_saving_keeps_every_figure() {
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
