//! Single users who send bursts, over a background of others.
//!
//! SkyLB names them twice (sections 3.2 and 5.2): a user's requests at one time vary by a factor of four and more, and a hash on
//! the user sends all of them to one replica. Here eight users send a dozen requests within a quarter of a second, all behind the
//! same long prompt of theirs, then nothing for 20 s on average: a map over the parts of a document, an evaluation, a script. Who
//! spreads a burst computes its prompt many times, who does not lets it queue. The background has the lengths of Azure's trace
//! and shares nothing.

use super::replay::duration;
use super::rng::{LogNormal, SeededRng};
use super::{Session, Workload, lengths};
use crate::prompt::{Piece, Prompt};

/// Bursts over a background.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursty {
    /// Length of the workload in seconds.
    pub duration_s: f64,
    /// Users who send bursts.
    pub users: usize,
    /// Mean time between two bursts of a user; exponential.
    pub pause_s: f64,
    /// Requests of a burst.
    pub burst: LogNormal,
    /// Mean time between two requests of a burst; exponential.
    pub gap_s: f64,
    /// Length of the shared beginning of a user's requests.
    pub prompt: LogNormal,
    /// Length of the rest of a request.
    pub text: LogNormal,
    /// Length of the answers to bursts.
    pub answer: LogNormal,
    /// Requests of others, a second; Poisson.
    pub background_per_s: f64,
    /// The first so many requests only warm the caches.
    pub warmup_requests: usize,
}

impl Default for Bursty {
    fn default() -> Self {
        Self {
            duration_s: 300.0,
            users: 8,
            pause_s: 20.0,
            burst: LogNormal::new(10.0, 0.6),
            gap_s: 0.02,
            prompt: LogNormal::new(2_000.0, 0.5),
            text: LogNormal::new(150.0, 0.6),
            answer: LogNormal::new(80.0, 0.6),
            background_per_s: 3.0,
            warmup_requests: 100,
        }
    }
}

const BURST: (u32, u32) = (2, 60);
const TOKENS: (u32, u32) = (8, 16_000);

impl Bursty {
    /// The workload of this seed.
    #[must_use]
    pub fn generate(&self, seed: u64) -> Workload {
        let mut rng = SeededRng::new(seed);
        let mut sessions = Vec::new();
        for _ in 0..self.users {
            self.user(&mut rng, &mut sessions);
        }
        let mut at = 0.0;
        if self.background_per_s > 0.0 {
            loop {
                at += rng.exponential(1.0 / self.background_per_s);
                if at >= self.duration_s {
                    break;
                }
                let lengths = lengths::sample(&mut rng);
                let prompt = Prompt::new([rng.text(lengths.prompt)]);
                let key = rng.key();
                let answer = Piece {
                    tokens: lengths.answer.max(1),
                    id: rng.id(),
                };
                sessions.push(Session::one(key, duration(at), prompt, answer));
            }
        }
        sessions.sort_by_key(|session| session.starts);
        Workload {
            name: "bursty".to_owned(),
            sessions,
            warmup_requests: self.warmup_requests,
            sends_until: None,
        }
    }

    fn user(&self, rng: &mut SeededRng, sessions: &mut Vec<Session>) {
        let key = rng.key();
        let tokens = self.prompt.tokens(rng, TOKENS.0, TOKENS.1);
        let common = rng.text(tokens);
        let mut begins = rng.exponential(self.pause_s);
        while begins < self.duration_s {
            let mut at = begins;
            for _ in 0..self.burst.tokens(rng, BURST.0, BURST.1) {
                let text = self.text.tokens(rng, TOKENS.0, TOKENS.1);
                let prompt = Prompt::new([common, rng.text(text)]);
                let answer = Piece {
                    tokens: self.answer.tokens(rng, TOKENS.0, TOKENS.1).max(1),
                    id: rng.id(),
                };
                sessions.push(Session::one(key, duration(at), prompt, answer));
                at += rng.exponential(self.gap_s);
            }
            begins += rng.exponential(self.pause_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_few_users_send_all_at_once() {
        let workload = Bursty::default().generate(1);
        let mut users: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for session in &workload.sessions {
            users
                .entry(session.key)
                .or_default()
                .push(session.starts.as_secs_f64());
        }
        let bursts: Vec<&Vec<f64>> = users.values().filter(|times| times.len() > 1).collect();
        assert_eq!(bursts.len(), 8);
        let of_bursts: usize = bursts.iter().map(|times| times.len()).sum();
        let background = workload.sessions.len() - of_bursts;
        assert!(
            (background as f64 / 300.0 - 3.0).abs() < 0.4,
            "{background}"
        );
        for times in bursts {
            // A user who sends a dozen at a time has most neighbours within a tenth of a second.
            let close = times
                .windows(2)
                .filter(|pair| pair[1] - pair[0] < 0.1)
                .count();
            assert!(
                close as f64 / times.len() as f64 > 0.8,
                "{close} of {}",
                times.len()
            );
        }
    }
}
