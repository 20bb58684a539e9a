//! Chiron's interactive autoscaling, as SageServe's code has it (P§7.1).
//!
//! Backpressure is the share of instances that have interactive work: above Θ = 0.6 the number rises, below it falls. The
//! region joins the shortest queue, so an instance is idle only when fewer requests than instances are in flight. Batch instances
//! would grow when a day of work waits, which never happens in these runs.

use super::{Scaler, View};

/// Backpressure above which the number rises.
const THETA: f64 = 0.6;
/// Hysteresis: below this part of Θ the number falls.
const FALLS_BELOW: f64 = 0.9;

/// Chiron's interactive autoscaling.
#[derive(Clone, Debug, Default)]
pub struct ChironScaler {
    /// Whether each deployment serves batch work only, and keeps its instances.
    keeps: Vec<bool>,
}

impl ChironScaler {
    /// Scales every deployment but those of these indices.
    #[must_use]
    pub fn new(deployments: usize, keeps: &[usize]) -> Self {
        Self {
            keeps: (0..deployments)
                .map(|index| keeps.contains(&index))
                .collect(),
        }
    }
}

impl Scaler for ChironScaler {
    fn desired(&mut self, _: f64, views: &[View]) -> Vec<Option<usize>> {
        let decide = |view: &View| {
            let current = view.current();
            let backpressure = if view.waiting > 0.0 {
                1.0
            } else {
                view.in_flight.min(1.0)
            };
            let backpressure = backpressure * view.ready as f64 / current.max(1) as f64;
            if self.keeps.get(view.deployment).copied().unwrap_or_default() {
                None
            } else if backpressure > THETA {
                Some(current + 1)
            } else {
                (backpressure < THETA * FALLS_BELOW).then(|| current.saturating_sub(1))
            }
        };
        views.iter().map(decide).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_grows_until_four_in_ten_instances_are_idle() {
        let mut scaler = ChironScaler::new(2, &[1]);
        let view = |in_flight: f64, deployment: usize| View {
            in_flight,
            deployment,
            ready: 10,
            ..View::default()
        };
        assert_eq!(scaler.desired(0.0, &[view(2.0, 0)]), [Some(11)]);
        assert_eq!(scaler.desired(0.0, &[view(0.58, 0)]), [None]);
        assert_eq!(scaler.desired(0.0, &[view(0.3, 0)]), [Some(9)]);
        assert_eq!(
            scaler.desired(0.0, &[view(0.3, 1)]),
            [None],
            "batch instances stay"
        );
    }
}
