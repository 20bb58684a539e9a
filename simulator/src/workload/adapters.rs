//! Requests for adapters (LoRA): more adapters than the slots of a replica, with popularities that differ.
//!
//! Each adapter is a customer's model with a system prompt of its own. Two dozen adapters share a pool whose replicas have four slots each,
//! so a router has to choose which adapters live where. Open loop, Poisson at a rate.

use super::replay::duration;
use super::rng::{LogNormal, SeededRng, Zipf};
use super::{OpenLoop, Session, Workload};
use crate::prompt::{Piece, Prompt};

/// Number of adapters.
const ADAPTERS: u32 = 24;
const EXPONENT: f64 = 0.9;
const SYSTEM: LogNormal = LogNormal::new(600.0, 0.6);
const TEXT: LogNormal = LogNormal::new(500.0, 0.9);
const ANSWER: LogNormal = LogNormal::new(130.0, 0.7);
const TOKENS: (u32, u32) = (8, 8_000);

/// The workload of a seed.
pub fn generate(of: &OpenLoop, seed: u64) -> Workload {
    let mut rng = SeededRng::new(seed);
    let system = |_| SYSTEM.text(&mut rng, TOKENS);
    // Texts of different adapters are different, so their requests share no cache.
    let systems: Vec<(u32, Piece)> = (0..ADAPTERS).zip((0..ADAPTERS).map(system)).collect();
    let popularity = Zipf::new(systems.len(), EXPONENT);
    let (mut sessions, mut at) = (Vec::with_capacity(of.requests), 0.0);
    while sessions.len() < of.requests {
        at += rng.exponential(1.0 / of.requests_per_s);
        let adapter = systems.get(popularity.sample(&mut rng));
        let text = TEXT.text(&mut rng, TOKENS);
        let prompt = Prompt::new(adapter.map(|(_, system)| *system).into_iter().chain([text]));
        let answer = ANSWER.text(&mut rng, TOKENS);
        sessions.push(Session {
            adapter: adapter.map(|(adapter, _)| *adapter),
            ..Session::one(rng.key(), duration(at), prompt, answer)
        });
    }
    of.workload("adapters", sessions)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn popular_adapters_get_many_times_the_requests_of_rare_ones() {
        let of = OpenLoop {
            requests: 4_000,
            requests_per_s: 40.0,
            warmup_requests: 0,
        };
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        let mut systems: BTreeMap<u64, u32> = BTreeMap::new();
        for session in generate(&of, 1).sessions {
            let adapter = session.adapter.unwrap();
            *counts.entry(adapter).or_default() += 1;
            let system = session.steps[0].prompt.pieces()[0].id;
            assert_eq!(*systems.entry(system).or_insert(adapter), adapter);
        }
        assert_eq!((counts.len(), systems.len()), (24, 24));
        assert!(counts[&0] > 8 * counts[&23], "{counts:?}");
    }
}
