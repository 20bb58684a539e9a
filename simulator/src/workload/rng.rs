//! Seeded random values for the generators: everything follows from a seed, nothing from the clock or from the order of a map.
//!
//! The distributions are written out rather than taken from a library: there are three of them, and a report must say the
//! same after an update of a dependency.

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::prompt::Piece;

/// A stream of random values and of unique identities.
#[derive(Clone, Debug)]
pub struct SeededRng {
    random: Pcg64Mcg,
    ids: u64,
}

impl SeededRng {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self {
            random: Pcg64Mcg::seed_from_u64(seed),
            ids: 0,
        }
    }

    /// An identity that this stream has not given before.
    pub fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// A text that occurs nowhere else.
    pub fn text(&mut self, tokens: u32) -> Piece {
        Piece::new(self.id(), tokens)
    }

    /// A session key: spread over all numbers, as hashes of names are.
    pub fn key(&mut self) -> u64 {
        self.random.random()
    }

    /// A number between 0 and 1, neither of them.
    pub fn unit(&mut self) -> f64 {
        1.0 - self.random.random::<f64>()
    }

    /// Whether something of this probability happens.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.random.random::<f64>() < probability
    }

    /// Time between independent events of this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    /// A number of the normal distribution of mean 0 and deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (core::f64::consts::TAU * self.unit()).cos()
    }

    /// A random part, by the weight of each; `None` without a part.
    pub fn weighted<'a, T>(&mut self, parts: &'a [T], weight: fn(&T) -> f64) -> Option<&'a T> {
        let mut left = self.unit() * parts.iter().map(weight).sum::<f64>();
        let chosen = parts.iter().find(|part| {
            left -= weight(part);
            left <= 0.0
        });
        chosen.or(parts.last())
    }

    /// A random value of a mixture of distributions, each with its weight.
    pub fn mixed(&mut self, parts: &[(f64, LogNormal)]) -> f64 {
        let part = self.weighted(parts, |(weight, _)| *weight);
        part.map_or(0.0, |(_, part)| part.sample(self))
    }

    /// Number of repetitions of an event that goes on with this probability each time: from 1 to `most`.
    pub fn repeats(&mut self, goes_on: f64, most: usize) -> usize {
        let mut times = 1;
        while times < most && self.chance(goes_on) {
            times += 1;
        }
        times
    }
}

/// A log-normal distribution: most lengths and pauses of people have it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogNormal {
    /// Half are below.
    pub median: f64,
    /// Deviation of the logarithm.
    pub sigma: f64,
}

impl LogNormal {
    /// A distribution with this median and this deviation of the logarithm.
    pub const fn new(median: f64, sigma: f64) -> Self {
        Self { median, sigma }
    }

    /// A distribution with this mean and deviation, as papers give them.
    pub fn of_mean(mean: f64, deviation: f64) -> Self {
        let variance = (deviation / mean).mul_add(deviation / mean, 1.0).ln();
        Self {
            median: mean / (variance / 2.0).exp(),
            sigma: variance.sqrt(),
        }
    }

    /// A random value.
    pub fn sample(&self, rng: &mut SeededRng) -> f64 {
        self.median * (self.sigma * rng.normal()).exp()
    }

    /// A random length within bounds.
    pub fn tokens(&self, rng: &mut SeededRng, bounds: (u32, u32)) -> u32 {
        within(self.sample(rng), bounds)
    }

    /// A text of random length within bounds, that occurs nowhere else.
    pub fn text(&self, rng: &mut SeededRng, bounds: (u32, u32)) -> Piece {
        let tokens = self.tokens(rng, bounds);
        rng.text(tokens)
    }
}

/// Ranks of falling popularity: the k-th has a weight of 1 / k^exponent (Zipf).
#[derive(Clone, Debug)]
pub struct Zipf {
    /// Sums of the weights up to each rank.
    sums: Vec<f64>,
}

impl Zipf {
    /// Zipf distribution over so many ranks.
    pub fn new(ranks: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (0..ranks)
            .map(|rank| {
                sum += (rank as f64 + 1.0).powf(-exponent);
                sum
            })
            .collect();
        Self { sums }
    }

    /// A rank, from 0.
    pub fn sample(&self, rng: &mut SeededRng) -> usize {
        let total = self.sums.last().copied().unwrap_or(0.0);
        let at = rng.unit() * total;
        let rank = self.sums.partition_point(|sum| *sum < at);
        rank.min(self.sums.len().saturating_sub(1))
    }
}

/// A length, rounded and within bounds.
pub fn within(tokens: f64, (least, most): (u32, u32)) -> u32 {
    (tokens.round() as u32).clamp(least, most.max(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_values() {
        let draws = |seed| {
            let mut rng = SeededRng::new(seed);
            (rng.key(), rng.unit(), rng.normal(), rng.id())
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7).0, draws(8).0);
    }

    #[test]
    fn a_log_normal_has_the_mean_and_the_deviation_it_was_made_of() {
        let mut rng = SeededRng::new(1);
        let distribution = LogNormal::of_mean(441.34, 410.91);
        let drawn: Vec<f64> = (0..100_000)
            .map(|_| distribution.sample(&mut rng))
            .collect();
        let mean = drawn.iter().sum::<f64>() / 100_000.0;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 100_000.0;
        assert!((mean - 441.34).abs() < 8.0, "{mean}");
        assert!(
            (variance.sqrt() - 410.91).abs() < 25.0,
            "{}",
            variance.sqrt()
        );
    }

    #[test]
    fn the_popularity_of_ranks_follows_zipf() {
        let (mut rng, zipf) = (SeededRng::new(1), Zipf::new(100, 1.0));
        let mut counts = [0_u32; 100];
        for _ in 0..100_000 {
            counts[zipf.sample(&mut rng)] += 1;
        }
        // The weights 1, 1/2 and 1/10 of 5.187.
        for (rank, share) in [(0, 0.1928), (1, 0.0964), (9, 0.0193)] {
            let seen = f64::from(counts[rank]) / 100_000.0;
            assert!((seen - share).abs() < 0.004, "{rank}: {seen}");
        }
    }

    #[test]
    fn gaps_and_repeats_have_their_means() {
        let mut rng = SeededRng::new(1);
        let gaps: f64 = (0..100_000).map(|_| rng.exponential(3.0)).sum();
        let repeats: usize = (0..100_000).map(|_| rng.repeats(0.6, 1_000)).sum();
        assert!((gaps / 100_000.0 - 3.0).abs() < 0.05);
        assert!((repeats as f64 / 100_000.0 - 2.5).abs() < 0.05);
    }
}
