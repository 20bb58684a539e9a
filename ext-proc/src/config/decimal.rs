//! Options that are numbers with decimals.

use std::fmt;
use std::ops::RangeInclusive;

use super::kind::{Kind, decimal_of};

/// The parts of a whole that a [`Decimal`] counts.
const PARTS: f64 = 10_000.0;

/// A number with four decimals. Unlike a floating-point number, two of them are equal or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Decimal(u32);

impl Decimal {
    /// The nearest decimal of a number that is not negative.
    pub(super) fn nearest(number: f64) -> Self {
        // A cast from float saturates.
        Self((number * PARTS).round() as u32)
    }

    pub(super) fn to_f64(self) -> f64 {
        f64::from(self.0) / PARTS
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_f64(), f)
    }
}

/// A number with up to four decimals in a range.
pub(super) fn decimal(range: RangeInclusive<f64>) -> Kind<Decimal> {
    decimal_of(range, Decimal::nearest, |decimal| decimal.to_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_is_shown_as_it_was_written() {
        for number in [0.0, 0.5, 1.0001, 1.1, 64.0] {
            let decimal = Decimal::nearest(number);
            assert_eq!(decimal.to_string(), number.to_string());
            assert_eq!(decimal, Decimal::nearest(decimal.to_f64()));
        }
    }
}
