//! Weighted times as a histogram with logarithmic bins: percentiles of hundreds of millions of requests in little memory.

/// Bins for each factor of ten: neighbouring bins differ by 2.3 %.
const BINS_PER_DECADE: f64 = 100.0;
/// Least time that is told apart, s.
const LEAST_S: f64 = 1e-3;
/// Bins from 1 ms to 10^6 s.
const BINS: usize = 901;

/// A histogram of times.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies {
    bins: Vec<f64>,
    infinite: f64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            bins: vec![0.0; BINS],
            infinite: 0.0,
        }
    }
}

impl Latencies {
    /// Adds `weight` requests that took `time_s`.
    pub fn add(&mut self, time_s: f64, weight: f64) {
        if !time_s.is_finite() {
            self.infinite += weight;
            return;
        }
        let place = ((time_s.max(LEAST_S) / LEAST_S).log10() * BINS_PER_DECADE) as usize;
        if let Some(bin) = self.bins.get_mut(place.min(BINS - 1)) {
            *bin += weight;
        }
    }

    /// Adds the times of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (bin, more) in self.bins.iter_mut().zip(&other.bins) {
            *bin += more;
        }
        self.infinite += other.infinite;
    }

    /// Number of requests.
    pub fn count(&self) -> f64 {
        self.bins.iter().sum::<f64>() + self.infinite
    }

    /// Time in seconds below which a share of the requests lies; infinite when they never ended, and 0 without a request.
    pub fn quantile(&self, share: f64) -> f64 {
        let wanted = self.count() * share;
        let mut sum = 0.0;
        for (index, weight) in self.bins.iter().enumerate() {
            sum += weight;
            if *weight > 0.0 && sum >= wanted {
                return LEAST_S * 10_f64.powf((index as f64 + 0.5) / BINS_PER_DECADE);
            }
        }
        if self.infinite > 0.0 {
            f64::INFINITY
        } else {
            0.0
        }
    }

    /// Share of the requests that took longer than `time_s`; 0 without a request.
    pub fn share_above(&self, time_s: f64) -> f64 {
        let all = self.count();
        if all <= 0.0 {
            return 0.0;
        }
        let place = ((time_s.max(LEAST_S) / LEAST_S).log10() * BINS_PER_DECADE) as usize;
        let above = self.bins.iter().skip(place + 1).sum::<f64>();
        (above + self.infinite) / all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_bin() {
        let mut times = Latencies::default();
        for number in 1..=1_000 {
            times.add(f64::from(number) / 100.0, 2.0);
        }
        assert_eq!(times.count(), 2_000.0);
        for (share, wanted) in [(0.5, 5.0), (0.95, 9.5)] {
            let found = times.quantile(share);
            assert!((found / wanted - 1.0).abs() < 0.025, "{share}: {found}");
        }
        assert!((times.share_above(9.0) - 0.1).abs() < 0.025);
    }

    #[test]
    fn requests_without_an_end_are_infinite() {
        let mut times = Latencies::default();
        assert_eq!(times.quantile(0.95), 0.0);
        times.add(1.0, 90.0);
        times.add(f64::INFINITY, 10.0);
        assert_eq!(times.quantile(0.95), f64::INFINITY);
        assert!(times.quantile(0.5).is_finite());
        let mut both = Latencies::default();
        both.merge(&times);
        assert_eq!(both, times);
    }
}
