//! Regions whose day comes at different times (SkyLB sections 2.2 and 5.2, Figures 2 and 3a).
//!
//! The rate at which conversations begin follows a cosine over the day, each region with its own phase. In WildChat the hours of
//! one region differ by 2.88 to 32.64 times (peak over trough), those of all regions together by 1.29. With an amplitude of 0.67
//! a region has 5 times; phases of eight hours and regions of 1.35, 1.0 and 0.65 times the mean leave 1.5 for the sum.
//! A day is played in ten minutes: nothing in an engine remembers longer than minutes.

use core::time::Duration;

use super::chat::{Book, Chat};
use super::replay::duration;
use super::rng::SeededRng;
use super::{Session, Workload};

/// Conversations over a day, by region.
#[derive(Clone, Debug, PartialEq)]
pub struct Diurnal {
    /// Length of a day in seconds; the workload plays a single day.
    pub day_s: f64,
    /// Conversations that begin each second on the day's average, by region.
    pub conversations_per_s: Vec<f64>,
    /// The part of the day at which each region has its peak, 0 to 1.
    pub peaks: Vec<f64>,
    /// Amplitude of the rate around its mean, from 0 to 1.
    pub amplitude: f64,
    /// Shape of the conversations; its clients and its duration are not used.
    pub chat: Chat,
    /// The first so many requests only warm the caches.
    pub warmup_requests: usize,
}

impl Default for Diurnal {
    /// Three regions, WildChat's conversations, 4.5 requests a second together.
    fn default() -> Self {
        let mean_per_s = 4.5 / 3.0 / 2.54;
        Self {
            day_s: 600.0,
            conversations_per_s: [1.35, 1.0, 0.65].map(|part| part * mean_per_s).into(),
            peaks: vec![0.2, 0.2 + 1.0 / 3.0, 0.2 + 2.0 / 3.0],
            amplitude: 0.67,
            chat: Chat {
                think_s: 5.0,
                ..Chat::wildchat()
            },
            warmup_requests: 100,
        }
    }
}

impl Diurnal {
    /// Conversations that begin each second in this region at this time.
    #[must_use]
    pub fn rate(&self, region: usize, at_s: f64) -> f64 {
        let mean = self.conversations_per_s.get(region).copied().unwrap_or(0.0);
        let peak = self.peaks.get(region).copied().unwrap_or(0.0);
        let phase = core::f64::consts::TAU * (at_s / self.day_s - peak);
        mean * self.amplitude.mul_add(phase.cos(), 1.0)
    }

    /// The workload of this seed.
    #[must_use]
    pub fn generate(&self, seed: u64) -> Workload {
        let mut rng = SeededRng::new(seed);
        let chat = Chat {
            clients: vec![0; self.conversations_per_s.len()],
            ..self.chat.clone()
        };
        let book = Book::new(&chat, &mut rng);
        let mut sessions = Vec::new();
        for (region, mean) in self.conversations_per_s.iter().enumerate() {
            // Drawn at the peak's rate, then thinned.
            let most = mean * (1.0 + self.amplitude);
            let mut at = 0.0;
            if most > 0.0 {
                loop {
                    at += rng.exponential(1.0 / most);
                    if at >= self.day_s {
                        break;
                    }
                    if !rng.chance(self.rate(region, at) / most) {
                        continue;
                    }
                    let own = book.opening(&mut rng);
                    let opening = book.begin(region, own, &mut rng);
                    sessions.push(Session {
                        region,
                        key: rng.key(),
                        follows: None,
                        starts: duration(at),
                        steps: chat.conversation(opening, &mut rng),
                    });
                }
            }
        }
        sessions.sort_by_key(|session| session.starts);
        Workload {
            name: "diurnal".to_owned(),
            sessions,
            warmup_requests: self.warmup_requests,
            sends_until: Some(Duration::from_secs_f64(self.day_s.max(0.0))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_varies_much_more_than_all_regions_together() {
        let diurnal = Diurnal::default();
        let hours = |rate: &dyn Fn(f64) -> f64| {
            let rates: Vec<f64> = (0..24).map(|hour| rate(f64::from(hour) * 25.0)).collect();
            let most = rates.iter().copied().fold(0.0, f64::max);
            most / rates.into_iter().fold(f64::MAX, f64::min)
        };
        for region in 0..3 {
            let spread = hours(&|at| diurnal.rate(region, at));
            assert!((2.88..=32.64).contains(&spread), "{spread}");
        }
        let together = hours(&|at| (0..3).map(|region| diurnal.rate(region, at)).sum());
        assert!((1.25..=1.60).contains(&together), "{together}");
    }

    #[test]
    fn conversations_begin_at_the_diurnal_rate() {
        let diurnal = Diurnal::default();
        let counts = |from: f64, to: f64| {
            (1..=10)
                .flat_map(|seed| diurnal.generate(seed).sessions)
                .filter(|session| {
                    session.region == 0 && (from..to).contains(&session.starts.as_secs_f64())
                })
                .count() as f64
        };
        // Around the peak of the first region, and around its trough: the mean of the cosine over an eighth of the day.
        let (peak, trough) = (counts(82.5, 157.5), counts(382.5, 457.5));
        let expected =
            |sign: f64| 10.0 * 75.0 * (1.35 * 4.5 / 3.0 / 2.54) * (sign * 0.67).mul_add(0.974, 1.0);
        assert!(
            (peak / expected(1.0) - 1.0).abs() < 0.12,
            "{peak} {}",
            expected(1.0)
        );
        assert!(
            (trough / expected(-1.0) - 1.0).abs() < 0.20,
            "{trough} {}",
            expected(-1.0)
        );
    }
}
