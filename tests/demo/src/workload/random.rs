//! Numbers for workloads.

use rand::Rng as _;
use rand_pcg::Pcg64Mcg;

/// A number of this range, both ends included.
pub(crate) fn uniform(random: &mut Pcg64Mcg, (least, most): (u32, u32)) -> u32 {
    random.random_range(least..=most.max(least))
}

/// A rank below `count`, the k-th with a weight of 1/k.
pub(crate) fn zipf(random: &mut Pcg64Mcg, count: usize) -> usize {
    let weight = |rank: usize| 1.0 / (rank as f64 + 1.0);
    let mut left = random.random::<f64>() * (0..count).map(weight).sum::<f64>();
    for rank in 0..count {
        left -= weight(rank);
        if left <= 0.0 {
            return rank;
        }
    }
    count.saturating_sub(1)
}

/// A number with this distribution of time between independent events, of mean 1, cut at 3.
pub(crate) fn exponential(random: &mut Pcg64Mcg) -> f64 {
    let value = -(1.0 - random.random::<f64>()).ln();
    value.min(3.0)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn a_few_are_the_most_popular() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut counts = [0_u32; 10];
        for _ in 0..10_000 {
            counts[zipf(&mut random, 10)] += 1;
        }
        assert!(
            counts[0] > 3 * counts[4] && counts[4] > counts[9] && counts[9] > 0,
            "{counts:?}"
        );
    }
}
