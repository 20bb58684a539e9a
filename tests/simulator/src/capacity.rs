//! The highest rate that a set-up bears: DualMap's goodput, "the peak request rate sustained under required SLO (e.g., 90 %)".
//!
//! The share of requests within the objective falls as the rate grows, but not smoothly: with other arrivals other requests
//! meet. The search takes it for monotone, and its answer for what it is: a rate that holds, two percent above which one was
//! seen that does not.

use core::time::Duration;

use crate::setup::Setup;
use crate::workload::Workload;
use crate::world::run;

/// How near the answer is to a rate that fails, as their ratio.
const PRECISION: f64 = 1.02;
/// No search goes beyond these rates, in requests a second.
const LOWEST: f64 = 1.0 / 1_024.0;
const HIGHEST: f64 = 1_048_576.0;

/// The highest rate at which at least `share` of the requests (0.9, say) have their first token within `slo`. `workload_at`
/// makes the workload of a rate; what the number means is its own business (requests a second, clients, a speed-up).
/// 0 when even the lowest rate fails.
pub fn capacity(
    setup: &Setup,
    workload_at: impl Fn(f64) -> Workload,
    slo: Duration,
    share: f64,
) -> f64 {
    highest(|rate| {
        let outcome = run(setup, &workload_at(rate));
        let summary = outcome.summary(slo);
        summary.requests > 0 && summary.slo_attainment >= share
    })
}

/// The highest rate that holds, if none above one that fails does.
fn highest(holds: impl Fn(f64) -> bool) -> f64 {
    let mut holding = None;
    let mut failing = None;
    let mut rate = 1.0;
    while (LOWEST..=HIGHEST).contains(&rate) {
        if holds(rate) {
            holding = Some(rate);
            rate *= 2.0;
        } else {
            failing = Some(rate);
            rate /= 2.0;
        }
        if holding.is_some() && failing.is_some() {
            break;
        }
    }
    let (Some(mut low), Some(mut high)) = (holding, failing) else {
        return holding.unwrap_or(0.0);
    };
    while high / low > PRECISION {
        let middle = f64::sqrt(low * high);
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_finds_the_limit_from_below() {
        for limit in [0.01, 0.3, 1.0, 7.7, 12_345.0] {
            let found = highest(|rate| rate <= limit);
            assert!(
                found <= limit && found * PRECISION * 1.001 > limit,
                "{found} for {limit}"
            );
        }
    }

    #[test]
    fn a_search_without_an_end_ends() {
        assert!(highest(|_| false) == 0.0);
        assert!(highest(|_| true) == HIGHEST);
    }
}
