//! Single users who send bursts, over a background of others.
//!
//! SkyLB names them twice (sections 3.2 and 5.2): a user's requests at one time vary by a factor of four and more, and a hash on
//! the user sends all of them to one replica. Eight users send a dozen requests within a quarter of a second, all behind the
//! same long prompt, then nothing for 20 s on average. A policy that spreads a burst computes its prompt many times; a policy
//! that does not lets it queue. The background has the lengths of Azure's trace and shares nothing.

use super::replay::{duration, scaled};
use super::rng::{LogNormal, SeededRng};
use super::{Session, Workload, lengths};
use crate::prompt::Prompt;

/// Usual length of the workload in seconds.
const DURATION_S: f64 = 300.0;
const WARMUP_REQUESTS: usize = 100;
const USERS: usize = 8;
/// Mean time between two bursts of a user; exponential.
const PAUSE_S: f64 = 20.0;
/// Requests of a burst, and the mean time between two of them.
const BURST: LogNormal = LogNormal::new(10.0, 0.6);
const BURST_REQUESTS: (u32, u32) = (2, 60);
const GAP_S: f64 = 0.02;
/// Tokens of a user's shared prompt, of the rest of a request, and of an answer.
const PROMPT: LogNormal = LogNormal::new(2_000.0, 0.5);
const TEXT: LogNormal = LogNormal::new(150.0, 0.6);
const ANSWER: LogNormal = LogNormal::new(80.0, 0.6);
const TOKENS: (u32, u32) = (8, 16_000);
/// Mean time between two requests of the background; exponential.
const BACKGROUND_GAP_S: f64 = 1.0 / 3.0;

/// The workload of a seed, `scale` times as long as usual.
pub fn generate(scale: f64, seed: u64) -> Workload {
    let duration_s = DURATION_S * scale;
    let mut rng = SeededRng::new(seed);
    let mut sessions = Vec::new();
    for _ in 0..USERS {
        add_user(duration_s, &mut rng, &mut sessions);
    }
    let mut at = rng.exponential(BACKGROUND_GAP_S);
    while at < duration_s {
        sessions.push(lengths::request(duration(at), &mut rng));
        at += rng.exponential(BACKGROUND_GAP_S);
    }
    sessions.sort_by_key(|session| session.starts);
    Workload {
        name: "bursty".to_owned(),
        sessions,
        warmup_requests: scaled(WARMUP_REQUESTS, scale),
        sends_until: None,
    }
}

/// Adds the bursts of a user.
fn add_user(duration_s: f64, rng: &mut SeededRng, sessions: &mut Vec<Session>) {
    let key = rng.key();
    let common = PROMPT.text(rng, TOKENS);
    let mut begins = rng.exponential(PAUSE_S);
    while begins < duration_s {
        let mut at = begins;
        for _ in 0..BURST.tokens(rng, BURST_REQUESTS) {
            let prompt = Prompt::new([common, TEXT.text(rng, TOKENS)]);
            let answer = ANSWER.text(rng, TOKENS);
            sessions.push(Session::one(key, duration(at), prompt, answer));
            at += rng.exponential(GAP_S);
        }
        begins += rng.exponential(PAUSE_S);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_few_users_send_all_at_once() {
        let workload = generate(1.0, 1);
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
