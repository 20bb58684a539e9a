//! An instance under load: the table that stands for the engine in runs of weeks.
//!
//! [`super::calibrate`] measures the table by requests through the routing core and the engine model. The aggregated model reads
//! from it; nothing in it is assumed but the lengths: a request longer than those measured counts as more requests, by the time
//! that the engine's own coefficients give it.

use super::traffic::Point;

/// Quantiles of a time that a level keeps.
pub const QUANTILES: usize = 20;

/// An engine under load.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Requests a second of an instance that always has work.
    pub capacity_per_s: f64,
    /// Tokens in the KV pool of an instance.
    pub kv_tokens: f64,
    /// Mean prompt and answer that the table was measured with, tokens.
    pub tokens: (f64, f64),
    /// Seconds of an engine that a prompt token and an answer token take.
    pub token_s: (f64, f64),
    /// Levels of load in ascending order.
    pub levels: Vec<Level>,
}

/// An instance at a level of load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Level {
    /// Arrivals over the capacity.
    pub load: f64,
    /// Share of the KV pool that is in use.
    pub utilisation: f64,
    /// Requests in the engine.
    pub in_flight: f64,
    /// Quantiles of the time to the first token in seconds: the middle of each twentieth.
    pub ttft_s: [f64; QUANTILES],
    /// Quantiles of the time to the end of the answer in seconds.
    pub e2e_s: [f64; QUANTILES],
}

impl Profile {
    /// The instance at a load, interpolated between the measured levels. Above the highest level, that level holds: what is
    /// beyond waits, and the caller counts its wait.
    pub fn at(&self, load: f64) -> Level {
        let above = self.levels.partition_point(|level| level.load < load);
        let level = |index: usize| self.levels.get(index).copied();
        let Some(high) = level(above).or(self.levels.last().copied()) else {
            return Level::default();
        };
        // Below the first level an instance is as fast as there, and emptier.
        let low = above.checked_sub(1).and_then(level).unwrap_or(Level {
            load: 0.0,
            utilisation: 0.0,
            in_flight: 0.0,
            ..high
        });
        let span = high.load - low.load;
        let share = if span > 0.0 {
            ((load - low.load) / span).clamp(0.0, 1.0)
        } else {
            1.0
        };
        let mix = |low: f64, high: f64| low + (high - low) * share;
        let mut result = Level {
            load,
            utilisation: mix(low.utilisation, high.utilisation),
            in_flight: mix(low.in_flight, high.in_flight),
            ..high
        };
        for (value, (low, high)) in result
            .ttft_s
            .iter_mut()
            .zip(low.ttft_s.iter().zip(&high.ttft_s))
        {
            *value = mix(*low, *high);
        }
        for (value, (low, high)) in result
            .e2e_s
            .iter_mut()
            .zip(low.e2e_s.iter().zip(&high.e2e_s))
        {
            *value = mix(*low, *high);
        }
        result
    }

    /// Highest load at which the KV pool's use stays below `utilisation`.
    pub fn load_at(&self, utilisation: f64) -> f64 {
        let mut before = Level::default();
        for level in &self.levels {
            if level.utilisation >= utilisation {
                let span = level.utilisation - before.utilisation;
                let share = if span > 0.0 {
                    (utilisation - before.utilisation) / span
                } else {
                    1.0
                };
                return before.load + (level.load - before.load) * share;
            }
            before = *level;
        }
        before.load
    }

    /// Requests of the measured lengths that take as long as one of these lengths.
    pub fn equivalents(&self, prompt_tokens: f64, output_tokens: f64) -> f64 {
        let time = |(prompt, output): (f64, f64)| prompt * self.token_s.0 + output * self.token_s.1;
        let measured = time(self.tokens);
        if measured > 0.0 {
            time((prompt_tokens, output_tokens)) / measured
        } else {
            1.0
        }
    }

    /// Instances that the interactive requests of a point keep busy.
    pub fn busy(&self, point: &Point) -> f64 {
        let requests = self.equivalents(point.prompt_tokens, point.output_tokens);
        point.interactive_per_s * requests / self.capacity_per_s
    }

    /// A point of requests of the measured lengths, without any.
    pub fn point(&self) -> Point {
        let (prompt_tokens, output_tokens) = self.tokens;
        Point {
            prompt_tokens,
            output_tokens,
            ..Point::default()
        }
    }

    /// Input tokens a second of an instance whose KV pool's use stays below `utilisation`: the paper's TPS of an instance.
    pub fn input_tokens_per_s(&self, utilisation: f64) -> f64 {
        self.load_at(utilisation) * self.capacity_per_s * self.tokens.0
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An engine of 10 requests a second whose use of the pool and whose time grow with the load.
    pub(crate) fn profile() -> Profile {
        let level = |load: f64| Level {
            load,
            utilisation: load * 0.9,
            in_flight: 20.0 * load,
            ttft_s: [0.1 / (1.0 - load); QUANTILES],
            e2e_s: [5.0 / (1.0 - load); QUANTILES],
        };
        Profile {
            capacity_per_s: 10.0,
            kv_tokens: 100_000.0,
            tokens: (1_000.0, 200.0),
            token_s: (5e-5, 2.5e-4),
            levels: [0.2, 0.5, 0.8, 0.9].map(level).to_vec(),
        }
    }

    #[test]
    fn levels_are_interpolated_and_end_at_the_measured_ones() {
        let profile = profile();
        assert!((profile.at(0.65).utilisation - 0.585).abs() < 1e-9);
        assert!((profile.at(0.1).utilisation - 0.09).abs() < 1e-9);
        assert_eq!(profile.at(0.1).ttft_s, profile.at(0.2).ttft_s);
        assert_eq!(profile.at(3.0).ttft_s, profile.at(0.9).ttft_s);
        assert!((profile.load_at(0.45) - 0.5).abs() < 1e-9);
        assert!(
            (profile.load_at(0.99) - 0.9).abs() < 1e-9,
            "the highest level"
        );
    }

    #[test]
    fn longer_requests_count_as_more() {
        let profile = profile();
        assert!((profile.equivalents(1_000.0, 200.0) - 1.0).abs() < 1e-9);
        assert!((profile.equivalents(2_000.0, 400.0) - 2.0).abs() < 1e-9);
        assert!((profile.equivalents(1_000.0, 0.0) - 0.5).abs() < 1e-9);
    }
}
