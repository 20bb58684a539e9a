//! Measures a [`Profile`]: requests through the shipped routing core and the engine model, at several levels of load.
//!
//! First the capacity: a fleet that gets more than it can serve, by its answers a second. Then each level: Poisson arrivals
//! with the lengths of Azure's conversation trace, the times of the requests and the use of the KV pools after a warm-up.

use core::time::Duration;

use isotherm_engine::model::Config;
use isotherm_policies::PolicyName;
use isotherm_router::{QueueLimits, RouterConfig};

use super::profile::{Level, Profile, QUANTILES};
use crate::LiveRun;
use crate::record::RequestRecord;
use crate::setup::{Arrangement, Setup};
use crate::workload::rng::SeededRng;
use crate::workload::{Workload, lengths};

/// Replicas of the fleet that is measured: the wait of a small fleet, as the fleets of these experiments are.
const REPLICAS: usize = 4;
/// Levels of load.
const LOADS: [f64; 9] = [0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];
/// Bound on a wait in the router: longer than any run.
const WAIT_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Plan of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// The engine.
    pub engine: Config,
    /// Length of each level in seconds, of which the first third warms up.
    pub length_s: f64,
    /// Seed of the arrivals and lengths.
    pub seed: u64,
}

impl Calibration {
    /// Measures the profile.
    pub fn run(&self) -> Profile {
        let token_s = self.token_s(1.0);
        let (prompt, answer) = mean_lengths();
        let guess = 1.0 / (prompt * token_s.0 + answer * token_s.1);
        let capacity_per_s = self.capacity(guess.max(1e-3));
        let level = |load: &f64| self.level(*load, capacity_per_s);
        let levels: Vec<Level> = LOADS.iter().map(level).collect();
        let batch = levels.last().map_or(1.0, |level| level.in_flight);
        Profile {
            capacity_per_s,
            kv_tokens: f64::from(self.engine.blocks) * f64::from(self.engine.block_tokens),
            tokens: (prompt, answer),
            token_s: self.token_s(batch.max(1.0)),
            levels,
        }
    }

    /// Seconds that a prompt token and an answer token take in a batch of this size.
    fn token_s(&self, batch: f64) -> (f64, f64) {
        let timing = &self.engine.timing;
        let (prompt, answer) = mean_lengths();
        let context = prompt + answer / 2.0;
        let base = timing.decode_base_ns as f64 / batch;
        let decode_ns = base
            + timing.decode_sequence_ns as f64
            + timing.decode_context_token_ns as f64 * context;
        let attention_ps = timing.prefill_pair_fs as f64 / 1_000.0 * prompt / 2.0;
        (
            (timing.prefill_token_ps as f64 + attention_ps) * 1e-12,
            decode_ns * 1e-9,
        )
    }

    /// Answers a second of an instance that always has work: generated tokens over the mean answer. Answers themselves would be
    /// too many at first, when the short ones end.
    fn capacity(&self, guess_per_s: f64) -> f64 {
        let (_, answer) = mean_lengths();
        // A batch of one is the slowest way to answer: the fleet is surely overloaded at many times that rate.
        let mut rate = guess_per_s * 4.0;
        loop {
            // The default policy prefers short prompts when it may choose, and would seem to serve more.
            let (setup, workload) = self.input(rate, rate, PolicyName::LeastOutstanding);
            let mut run = LiveRun::new(&setup, &workload);
            let [from, to] = [self.length_s / 2.0, self.length_s];
            run.advance(Duration::from_secs_f64(from));
            let before = run.output_tokens();
            run.advance(Duration::from_secs_f64(to));
            let tokens = (run.output_tokens() - before) as f64;
            let capacity = tokens / answer / (to - from) / REPLICAS as f64;
            if capacity < rate * 0.8 || rate > guess_per_s * 1e4 {
                return capacity;
            }
            rate *= 2.0;
        }
    }

    fn level(&self, load: f64, capacity_per_s: f64) -> Level {
        let (setup, workload) = self.input(load * capacity_per_s, load, PolicyName::Isotherm);
        let outcome = crate::run(&setup, &workload);
        let from = Duration::from_secs_f64(self.length_s / 3.0);
        let counted = || {
            outcome
                .requests
                .iter()
                .filter(|request| request.sent >= from)
        };
        let samples = outcome.samples.iter().filter(|sample| sample.at >= from);
        let samples: Vec<_> = samples
            .filter(|sample| sample.at.as_secs_f64() < self.length_s)
            .flat_map(|sample| &sample.replicas)
            .collect();
        let mean = |of: &dyn Fn(&crate::ReplicaSample) -> f64| {
            samples.iter().map(|sample| of(sample)).sum::<f64>() / samples.len().max(1) as f64
        };
        let blocks = f64::from(self.engine.blocks.max(1));
        Level {
            load,
            utilisation: mean(&|sample| f64::from(sample.blocks_held) / blocks),
            in_flight: mean(&|sample| f64::from(sample.outstanding)),
            ttft_s: quantiles(counted().filter_map(RequestRecord::ttft)),
            e2e_s: quantiles(counted().filter_map(RequestRecord::e2e)),
        }
    }

    /// Arrivals of a rate for each replica, and the fleet.
    fn input(&self, rate_per_s: f64, stream: f64, policy: PolicyName) -> (Setup, Workload) {
        let seed = self.seed ^ stream.to_bits();
        let workload = arrivals(rate_per_s * REPLICAS as f64, self.length_s, seed);
        let config = RouterConfig {
            policy: policy.into(),
            queue: QueueLimits {
                length_max: 1_000_000,
                wait_max: WAIT_MAX,
                ..QueueLimits::default()
            },
            ..RouterConfig::default()
        };
        let setup = Setup {
            seed,
            ..Setup::one_region(self.engine, REPLICAS, Arrangement::Router(config))
        };
        (setup, workload)
    }
}

/// Poisson arrivals with the lengths of Azure's conversation trace; no prompt shares anything with another.
pub fn arrivals(rate_per_s: f64, length_s: f64, seed: u64) -> Workload {
    let mut rng = SeededRng::new(seed);
    let mut sessions = Vec::new();
    let mut at = rng.exponential(1.0 / rate_per_s.max(1e-9));
    while at < length_s {
        sessions.push(lengths::request(Duration::from_secs_f64(at), &mut rng));
        at += rng.exponential(1.0 / rate_per_s.max(1e-9));
    }
    Workload {
        name: "arrivals".to_owned(),
        sessions,
        ..Workload::default()
    }
}

/// Mean lengths of the arrivals, tokens.
fn mean_lengths() -> (f64, f64) {
    super::trace::CONVERSATION_TOKENS
}

/// The middle of each twentieth of the times, in seconds.
fn quantiles(times: impl Iterator<Item = Duration>) -> [f64; QUANTILES] {
    let mut times: Vec<f64> = times.map(|time| time.as_secs_f64()).collect();
    times.sort_by(f64::total_cmp);
    let mut result = [0.0; QUANTILES];
    for (index, value) in result.iter_mut().enumerate() {
        let place = (index as f64 + 0.5) / QUANTILES as f64 * times.len() as f64;
        *value = times.get(place as usize).copied().unwrap_or_default();
    }
    result
}
