//! Groups of prompts behind long prefixes of their own, as in the catalogue of inference-perf (`shared_prefix`).
//!
//! llm-d publishes its figures on this load: 150 groups of 5 prompts, prefixes of 6,000 tokens, questions of 1,200 and answers of 1,000.
//! Each prompt is sent several times, and each round has another order. Requests arrive at a rate, as a Poisson process.

use super::replay::duration;
use super::rng::SeededRng;
use super::{OpenLoop, Session, Workload};
use crate::prompt::{Piece, Prompt};

const GROUPS: usize = 150;
const PROMPTS: usize = 5;
const PREFIX_TOKENS: u32 = 6_000;
const QUESTION_TOKENS: u32 = 1_200;
const ANSWER_TOKENS: u32 = 1_000;

/// The workload of a seed.
pub fn generate(of: &OpenLoop, seed: u64) -> Workload {
    let mut rng = SeededRng::new(seed);
    let mut prompts = Vec::with_capacity(GROUPS * PROMPTS);
    for _ in 0..GROUPS {
        let (key, prefix) = (rng.key(), rng.text(PREFIX_TOKENS));
        let prompt = |_| (key, Prompt::new([prefix, rng.text(QUESTION_TOKENS)]));
        prompts.extend((0..PROMPTS).map(prompt));
    }
    let (mut sessions, mut at) = (Vec::with_capacity(of.requests), 0.0);
    while sessions.len() < of.requests {
        shuffle(&mut prompts, &mut rng);
        for (key, prompt) in prompts.iter().take(of.requests - sessions.len()) {
            at += rng.exponential(1.0 / of.requests_per_s);
            let answer: Piece = rng.text(ANSWER_TOKENS);
            let session = Session::one(*key, duration(at), prompt.clone(), answer);
            sessions.push(session);
        }
    }
    of.workload("shared-prefix", sessions)
}

fn shuffle<T>(items: &mut [T], rng: &mut SeededRng) {
    for last in (1..items.len()).rev() {
        let other = (rng.unit() * (last + 1) as f64) as usize;
        items.swap(last, other.min(last));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn every_prompt_comes_once_before_any_comes_again() {
        let of = OpenLoop {
            requests: 2 * GROUPS * PROMPTS,
            requests_per_s: 10.0,
            warmup_requests: 0,
        };
        let workload = generate(&of, 1);
        let pieces: Vec<&[Piece]> = workload
            .sessions
            .iter()
            .map(|session| session.steps[0].prompt.pieces())
            .collect();
        let (first, second) = pieces.split_at(GROUPS * PROMPTS);
        let ids =
            |half: &[&[Piece]]| -> BTreeSet<u64> { half.iter().map(|one| one[1].id).collect() };
        assert_eq!(ids(first).len(), GROUPS * PROMPTS);
        assert_eq!(ids(first), ids(second));
        assert_ne!(first, second, "another order");
        let mut groups: BTreeMap<u64, usize> = BTreeMap::new();
        for prompt in first {
            *groups.entry(prompt[0].id).or_default() += 1;
        }
        assert_eq!(groups.len(), GROUPS);
        assert!(groups.values().all(|prompts| *prompts == PROMPTS));
    }
}
