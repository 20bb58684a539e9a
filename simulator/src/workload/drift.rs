//! A load and a mix that change: phases of a few minutes, each with its own rate, its own share of each kind of request, and its own texts.
//!
//! - labels: short items behind instructions that many requests share, with answers of a few tokens
//! - documents: questions about long documents, a few for each, with answers of a paragraph
//! - writing: short prompts with long answers
//!
//! What a router learned in a phase (lengths of answers, hits, speeds under load) is wrong in the next one. Open loop, Poisson within a phase.

use core::time::Duration;

use super::replay::duration;
use super::rng::{LogNormal, SeededRng};
use super::{Session, Workload};
use crate::prompt::{Piece, Prompt};

/// A load and a mix that change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// Length of a phase.
    pub phase: Duration,
    /// Number of first requests that only warm the caches.
    pub warmup_requests: usize,
}

/// A phase: requests a second, and the shares of labels and of documents; the others write.
struct Phase {
    requests_per_s: f64,
    labels: f64,
    documents: f64,
}

const PHASES: [Phase; 6] = [
    phase(4.0, 0.2, 0.6),
    phase(14.0, 0.8, 0.1),
    phase(6.5, 0.1, 0.8),
    phase(3.0, 0.2, 0.2),
    phase(8.0, 0.1, 0.3),
    phase(5.5, 0.1, 0.9),
];
const TASKS: usize = 6;
const INSTRUCTIONS: LogNormal = LogNormal::new(1_500.0, 0.4);
const ITEM: LogNormal = LogNormal::new(250.0, 0.6);
const LABEL: LogNormal = LogNormal::new(10.0, 0.4);
/// Documents under discussion at a time; after a question, one in so many makes place for a new one.
const DOCUMENTS: usize = 16;
const RENEWED: f64 = 0.2;
const DOCUMENT: LogNormal = LogNormal::new(9_000.0, 0.6);
const QUESTION: LogNormal = LogNormal::new(60.0, 0.5);
const PARAGRAPH: LogNormal = LogNormal::new(220.0, 0.5);
const WISH: LogNormal = LogNormal::new(180.0, 0.7);
const ESSAY: LogNormal = LogNormal::new(1_100.0, 0.5);
const PROMPT_TOKENS: (u32, u32) = (8, 40_000);
const ANSWER_TOKENS: (u32, u32) = (2, 4_000);

const fn phase(requests_per_s: f64, labels: f64, documents: f64) -> Phase {
    Phase {
        requests_per_s,
        labels,
        documents,
    }
}

impl Drift {
    /// The workload of this seed.
    pub fn generate(&self, seed: u64) -> Workload {
        let mut rng = SeededRng::new(seed);
        let mut sessions = Vec::new();
        for (number, phase) in PHASES.iter().enumerate() {
            let begins = self.phase.as_secs_f64() * number as f64;
            phase.play(begins, self.phase.as_secs_f64(), &mut rng, &mut sessions);
        }
        Workload {
            name: "drift".to_owned(),
            sessions,
            warmup_requests: self.warmup_requests,
            sends_until: None,
        }
    }
}

impl Phase {
    fn play(&self, begins: f64, length: f64, rng: &mut SeededRng, sessions: &mut Vec<Session>) {
        let tasks: Vec<Piece> = texts(TASKS, INSTRUCTIONS, rng);
        let mut documents: Vec<Piece> = texts(DOCUMENTS, DOCUMENT, rng);
        let mut at = rng.exponential(1.0 / self.requests_per_s);
        while at < length {
            let kind = rng.unit();
            let (prompt, answer) = if kind < self.labels {
                let prompt = [any(&tasks, rng), ITEM.text(rng, PROMPT_TOKENS)];
                (prompt.to_vec(), LABEL)
            } else if kind < self.labels + self.documents {
                let document = any(&documents, rng);
                if rng.chance(RENEWED) {
                    documents.retain(|one| *one != document);
                    documents.push(DOCUMENT.text(rng, PROMPT_TOKENS));
                }
                (vec![document, QUESTION.text(rng, PROMPT_TOKENS)], PARAGRAPH)
            } else {
                (vec![WISH.text(rng, PROMPT_TOKENS)], ESSAY)
            };
            let answer = answer.text(rng, ANSWER_TOKENS);
            let starts = duration(begins + at);
            sessions.push(Session::one(rng.key(), starts, Prompt::new(prompt), answer));
            at += rng.exponential(1.0 / self.requests_per_s);
        }
    }
}

fn texts(count: usize, lengths: LogNormal, rng: &mut SeededRng) -> Vec<Piece> {
    (0..count)
        .map(|_| lengths.text(rng, PROMPT_TOKENS))
        .collect()
}

fn any(texts: &[Piece], rng: &mut SeededRng) -> Piece {
    let at = (rng.unit() * texts.len() as f64) as usize;
    texts.get(at).copied().unwrap_or(Piece::new(0, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_and_the_mix_differ_from_phase_to_phase() {
        let drift = Drift {
            phase: Duration::from_secs(100),
            warmup_requests: 0,
        };
        let workload = drift.generate(1);
        let of_phase = |number: u64| {
            let sessions = workload.sessions.iter();
            sessions.filter(move |session| session.starts.as_secs() / 100 == number)
        };
        for (number, phase) in (0..).zip(&PHASES) {
            let count = of_phase(number).count() as f64;
            let rate = count / 100.0;
            assert!(
                (rate / phase.requests_per_s - 1.0).abs() < 0.2,
                "{number}: {rate}"
            );
            let labels = of_phase(number).filter(|one| one.steps[0].output_tokens <= 30);
            let share = labels.count() as f64 / count;
            assert!((share - phase.labels).abs() < 0.08, "{number}: {share}");
        }
    }
}
