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
#[derive(Clone, Copy, Debug, Default)]
pub struct ChironScaler;

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
            if backpressure > THETA {
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
        let mut scaler = ChironScaler;
        let view = |in_flight: f64| View {
            in_flight,
            ready: 10,
            ..View::default()
        };
        assert_eq!(scaler.desired(0.0, &[view(2.0)]), [Some(11)]);
        assert_eq!(scaler.desired(0.0, &[view(0.58)]), [None]);
        assert_eq!(scaler.desired(0.0, &[view(0.3)]), [Some(9)]);
    }
}
