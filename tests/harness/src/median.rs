//! Median and range of repeated measurements.

/// The median, the minimum and the maximum of a set of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MedianRange {
    /// The median; of an even number of values, the mean of the two in the middle.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl MedianRange {
    /// Summarises `values` without NaN; `None` when no value is left.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
        values.sort_by(f64::total_cmp);
        let upper = *values.get(values.len() / 2)?;
        let lower = *values.get((values.len() - 1) / 2)?;
        Some(Self {
            median: f64::midpoint(lower, upper),
            min: *values.first()?,
            max: *values.last()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_range_ignore_nan() {
        let range = MedianRange::of([4.0, 1.0, f64::NAN, 3.0, 2.0]).unwrap();
        assert_eq!((range.min, range.median, range.max), (1.0, 2.5, 4.0));
        assert_eq!(MedianRange::of([f64::NAN]), None);
    }
}
