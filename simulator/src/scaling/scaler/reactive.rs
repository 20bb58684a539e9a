//! The reactive strategy (P§4, P§7.1): one instance more above a utilisation, one fewer below another, a cooldown in between.
//!
//! The paper asks at every request; requests are more frequent than the cooldown here, so every step asks. Instances that start
//! are not seen in the utilisation: the strategy adds one for each cooldown until the first serves, as the paper's does.

use super::{Scaler, View};

/// Thresholds of the utilisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Utilisation above which the number rises.
    pub up: f64,
    /// Utilisation below which the number falls.
    pub down: f64,
    /// Time between two changes, s.
    pub cooldown_s: f64,
}

impl Thresholds {
    /// The paper's text, for every strategy.
    pub const TEXT: Self = Self {
        up: 0.70,
        down: 0.30,
        cooldown_s: 15.0,
    };
    /// The paper's published code, for the reactive strategy.
    pub const REACTIVE_CODE: Self = Self {
        cooldown_s: 65.0,
        ..Self::TEXT
    };
    /// The paper's published code, for LT-U and LT-UA.
    pub const PACED_CODE: Self = Self {
        up: 0.50,
        down: 0.25,
        cooldown_s: 65.0,
    };
}

/// The reactive strategy.
#[derive(Clone, Debug)]
pub struct ReactiveScaler {
    thresholds: Thresholds,
    /// When the number of each view changed last.
    changed_s: Vec<f64>,
}

impl ReactiveScaler {
    /// The strategy with these thresholds.
    pub fn new(thresholds: Thresholds) -> Self {
        Self {
            thresholds,
            changed_s: Vec::new(),
        }
    }
}

impl Scaler for ReactiveScaler {
    fn desired(&mut self, now_s: f64, views: &[View]) -> Vec<Option<usize>> {
        self.changed_s.resize(views.len(), f64::NEG_INFINITY);
        let each = views.iter().zip(&mut self.changed_s);
        each.map(|(view, changed_s)| {
            if now_s - *changed_s < self.thresholds.cooldown_s {
                return None;
            }
            let (min, max) = view.bounds;
            let current = view.current();
            let wanted = if view.utilisation > self.thresholds.up {
                (current + 1).min(max)
            } else if view.utilisation < self.thresholds.down {
                current.saturating_sub(1).max(min)
            } else {
                current
            };
            (wanted != current).then(|| {
                *changed_s = now_s;
                wanted
            })
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(utilisation: f64, ready: usize) -> View {
        View {
            utilisation,
            ready,
            bounds: (2, 5),
            ..View::default()
        }
    }

    #[test]
    fn one_instance_for_each_cooldown_within_bounds() {
        let mut scaler = ReactiveScaler::new(Thresholds::TEXT);
        assert_eq!(scaler.desired(15.0, &[view(0.8, 3)]), [Some(4)]);
        assert_eq!(scaler.desired(25.0, &[view(0.8, 4)]), [None], "cooldown");
        assert_eq!(scaler.desired(30.0, &[view(0.8, 4)]), [Some(5)]);
        assert_eq!(scaler.desired(60.0, &[view(0.8, 5)]), [None], "bound");
        assert_eq!(scaler.desired(75.0, &[view(0.5, 5)]), [None]);
        assert_eq!(scaler.desired(90.0, &[view(0.2, 3)]), [Some(2)]);
        assert_eq!(scaler.desired(900.0, &[view(0.2, 2)]), [None], "bound");
    }
}
