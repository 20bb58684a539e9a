//! Regions whose day comes at different times (SkyLB sections 2.2 and 5.2, Figures 2 and 3a).
//!
//! The rate at which conversations begin follows a cosine over the day, each region with its own phase. In WildChat the hours of
//! one region differ by 2.88 to 32.64 times (peak over trough), those of all regions together by 1.29. With an amplitude of 0.67
//! a region has 5 times; phases of eight hours and regions of 1.35, 1.0 and 0.65 times the mean leave 1.5 for the sum.
//! A day is played in ten minutes: nothing in an engine remembers longer than minutes.

use super::chat::{Book, Chat};
use super::replay::{duration, scaled};
use super::rng::SeededRng;
use super::{Session, Workload};

/// Usual length of a day in seconds; the workload plays a single day.
const DAY_S: f64 = 600.0;
const WARMUP_REQUESTS: usize = 100;
/// Conversations that begin each second in a region on the day's average: 4.5 requests a second over three regions.
const MEAN_PER_S: f64 = 4.5 / 3.0 / 2.54;
/// Share of the mean and part of the day with the peak, by region.
pub(super) const REGIONS: [(f64, f64); 3] =
    [(1.35, 0.2), (1.0, 0.2 + 1.0 / 3.0), (0.65, 0.2 + 2.0 / 3.0)];
/// Amplitude of the rate around its mean.
const AMPLITUDE: f64 = 0.67;
const THINK_S: f64 = 5.0;

/// Conversations that begin each second in a region of this share and peak, at a part of the day.
fn rate((share, peak): (f64, f64), part: f64) -> f64 {
    let phase = core::f64::consts::TAU * (part - peak);
    share * MEAN_PER_S * AMPLITUDE.mul_add(phase.cos(), 1.0)
}

/// The workload of a seed, with a day `scale` times as long as usual.
pub fn generate(scale: f64, seed: u64) -> Workload {
    let day_s = DAY_S * scale;
    let regions = REGIONS.map(|shape| Curve {
        most_per_s: shape.0 * MEAN_PER_S * (1.0 + AMPLITUDE),
        rate: Box::new(move |part| rate(shape, part)),
    });
    Workload {
        name: "diurnal".to_owned(),
        sessions: conversations(&regions, day_s, seed),
        warmup_requests: scaled(WARMUP_REQUESTS, scale),
        sends_until: Some(duration(day_s)),
    }
}

/// A week of conversations, `length_s` long, in so many regions. Each follows the same rates, which are of equal parts of the
/// week; the days of the regions begin one after the other, evenly.
pub fn week(rates: &[f64], regions: usize, length_s: f64, seed: u64) -> Workload {
    const DAYS: f64 = 7.0;
    let most = rates.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let curve = |region: usize| {
        let later = region as f64 / regions.max(1) as f64 / DAYS;
        let rates = rates.to_vec();
        Curve {
            most_per_s: most,
            rate: Box::new(move |part| {
                let place = (part + later).fract() * rates.len() as f64;
                rates.get(place as usize).copied().unwrap_or_default()
            }),
        }
    };
    let curves: Vec<Curve> = (0..regions).map(curve).collect();
    Workload {
        name: "week".to_owned(),
        sessions: conversations(&curves, length_s, seed),
        warmup_requests: WARMUP_REQUESTS,
        sends_until: Some(duration(length_s)),
    }
}

/// The conversations that begin in a region.
struct Curve {
    most_per_s: f64,
    /// Conversations that begin each second, by the part of the run.
    rate: Box<dyn Fn(f64) -> f64>,
}

/// The conversations of every region: drawn at the highest rate, then thinned.
fn conversations(regions: &[Curve], length_s: f64, seed: u64) -> Vec<Session> {
    let mut rng = SeededRng::new(seed);
    let chat = Chat {
        clients: vec![0; regions.len()],
        think_s: THINK_S,
        ..Chat::wildchat()
    };
    let book = Book::new(&chat, &mut rng);
    let mut sessions = Vec::new();
    for (region, curve) in regions.iter().enumerate() {
        let mut at = rng.exponential(1.0 / curve.most_per_s);
        while at < length_s {
            if rng.chance((curve.rate)(at / length_s) / curve.most_per_s) {
                let own = book.opening(&mut rng);
                let opening = book.begin(region, own, &mut rng);
                let key = rng.key();
                let steps = chat.conversation(opening, &mut rng);
                sessions.push(Session {
                    region,
                    ..Session::new(key, duration(at), steps)
                });
            }
            at += rng.exponential(1.0 / curve.most_per_s);
        }
    }
    sessions.sort_by_key(|session| session.starts);
    sessions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_varies_much_more_than_all_regions_together() {
        let hours = |rate: &dyn Fn(f64) -> f64| {
            let rates: Vec<f64> = (0..24).map(|hour| rate(f64::from(hour) / 24.0)).collect();
            let most = rates.iter().copied().fold(0.0, f64::max);
            most / rates.into_iter().fold(f64::MAX, f64::min)
        };
        for region in REGIONS {
            let spread = hours(&|at| rate(region, at));
            assert!((2.88..=32.64).contains(&spread), "{spread}");
        }
        let together = hours(&|at| REGIONS.map(|region| rate(region, at)).iter().sum());
        assert!((1.25..=1.60).contains(&together), "{together}");
    }

    #[test]
    fn conversations_begin_at_the_diurnal_rate() {
        let counts = |from: f64, to: f64| {
            (1..=10)
                .flat_map(|seed| generate(1.0, seed).sessions)
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
