//! The middle of some values and how far they lie apart.

/// Median, least and most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle; of an even number of values, half-way between the two.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of these values; `None` without any.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let upper = *values.get(values.len() / 2)?;
        let lower = *values.get((values.len() - 1) / 2)?;
        Some(Self {
            median: f64::midpoint(lower, upper),
            least,
            most,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_its_middle_and_its_ends_and_leaves_out_what_is_no_number() {
        let spread = Spread::of([4.0, 1.0, f64::NAN, 3.0, 2.0]).unwrap();
        assert_eq!((spread.least, spread.median, spread.most), (1.0, 2.5, 4.0));
        assert_eq!(Spread::of([f64::NAN]), None);
    }
}
