//! Stability of a recursion.

/// Largest partial autocorrelation that counts as stationary: at 1 a shock never fades.
const PARTIAL_MAX: f64 = 0.9999;

/// Whether `x_t = Σ a_i x_{t-i}` fades: all partial autocorrelations, by the step-down recursion of Durbin and Levinson, are
/// below 1.
pub(super) fn is_stationary(coefficients: &[f64]) -> bool {
    let mut current = coefficients.to_vec();
    while let Some(partial) = current.pop() {
        if !partial.is_finite() || partial.abs() >= PARTIAL_MAX {
            return false;
        }
        let scale = 1.0 - partial * partial;
        let reversed: Vec<f64> = current.iter().rev().copied().collect();
        for (value, mirror) in current.iter_mut().zip(reversed) {
            *value = (*value + partial * mirror) / scale;
        }
    }
    true
}
